"""aiohttp's module of the functions that it takes from aiofastnet, from aiohttp 3.15 on."""

import aiofastnet

create_connection = aiofastnet.create_connection
create_server = aiofastnet.create_server
start_tls = aiofastnet.start_tls
sendfile = aiofastnet.sendfile
