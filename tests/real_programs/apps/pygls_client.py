"""A client of pygls, which starts pygls_server.py on goloop."""

import asyncio
import sys
from pathlib import Path

from lsprotocol.types import ClientCapabilities, ExecuteCommandParams, InitializeParams
from pygls.lsp.client import BaseLanguageClient


async def main():
    client = BaseLanguageClient("client", "1")
    server = str(Path(__file__).with_name("pygls_server.py"))
    await client.start_io(sys.executable, "-m", "goloop", server)
    await client.initialize_async(InitializeParams(capabilities=ClientCapabilities()))
    asked = ExecuteCommandParams(command="loop", arguments=[])
    print("server", await client.workspace_execute_command_async(asked))
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    print("client", asyncio.get_running_loop())


asyncio.run(main())
