"""A language server of pygls over stdin and stdout, with a command that returns its loop."""

import asyncio

from pygls.lsp.server import LanguageServer

server = LanguageServer("tools", "1")


@server.command("loop")
async def loop(*arguments):
    return repr(asyncio.get_running_loop())


server.start_io()
