"""A server of MCP's SDK over stdin and stdout, with a tool that returns its loop."""

import asyncio

from mcp.server.mcpserver import MCPServer

server = MCPServer("tools")


@server.tool()
async def loop() -> str:
    return repr(asyncio.get_running_loop())


server.run()
