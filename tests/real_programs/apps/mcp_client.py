"""A client of MCP's SDK, which starts mcp_server.py on goloop."""

import asyncio
import sys
from pathlib import Path

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main():
    path = str(Path(__file__).with_name("mcp_server.py"))
    server = StdioServerParameters(command=sys.executable, args=["-m", "goloop", path])
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        print("server", (await session.call_tool("loop")).content[0].text)
    print("client", asyncio.get_running_loop())


asyncio.run(main())
