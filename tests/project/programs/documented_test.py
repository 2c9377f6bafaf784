async def work():
    pass


def test_it():
    pass
