"""A test of a project whose plugin other_option.py has an option --loop of its own."""


def test_number(request):
    assert request.config.getoption("--loop") == 7
