"""Servers of tools over stdin and stdout: MCP's SDK, and pygls for the Language Server Protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from real_programs.programs import LOOP, Programs, needs

pytestmark = pytest.mark.real

MCP_SERVER = """
import asyncio
from mcp.server.mcpserver import MCPServer

server = MCPServer("tools")

@server.tool()
async def loop() -> str:
    return repr(asyncio.get_running_loop())

server.run()
"""

MCP_CLIENT = """
import asyncio, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = StdioServerParameters(command=sys.executable, args=["-m", "goloop", "server.py"])
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        print("server", (await session.call_tool("loop")).content[0].text)
    print("client", asyncio.get_running_loop())

asyncio.run(main())
"""

LSP_SERVER = """
import asyncio
from pygls.lsp.server import LanguageServer

server = LanguageServer("tools", "1")

@server.command("loop")
async def loop(*arguments):
    return repr(asyncio.get_running_loop())

server.start_io()
"""

LSP_CLIENT = """
import asyncio, sys
from lsprotocol.types import ClientCapabilities, ExecuteCommandParams, InitializeParams
from pygls.lsp.client import BaseLanguageClient

async def main():
    client = BaseLanguageClient("client", "1")
    await client.start_io(sys.executable, "-m", "goloop", "server.py")
    await client.initialize_async(InitializeParams(capabilities=ClientCapabilities()))
    asked = ExecuteCommandParams(command="loop", arguments=[])
    print("server", await client.workspace_execute_command_async(asked))
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    print("client", asyncio.get_running_loop())

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("package", "server", "client"),
    [("mcp", MCP_SERVER, MCP_CLIENT), ("pygls", LSP_SERVER, LSP_CLIENT)],
)
def test_server_and_client_run_on_goloop(
    programs: Programs, tmp_path: Path, monkeypatch, package: str, server: str, client: str
) -> None:
    needs(package)
    (tmp_path / "server.py").write_text(server)
    (tmp_path / "client.py").write_text(client)
    monkeypatch.chdir(tmp_path)
    said = programs.ends_well("-m", "goloop", "client.py")
    assert f"server <{LOOP} running=True" in said
    assert f"client <{LOOP} running=True" in said
