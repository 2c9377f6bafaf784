import asyncio.tools


def refuse(pid, **options):
    raise PermissionError("not here")


asyncio.tools.get_all_awaited_by = refuse
