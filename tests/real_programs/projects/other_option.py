"""A plugin of pytest that has an option --loop, which is a number."""


def pytest_addoption(parser):
    parser.addoption("--loop", type=int)
