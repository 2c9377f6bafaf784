async def app(scope, receive, send):
    while scope["type"] == "lifespan":
        step = (await receive())["type"]
        await send({"type": f"{step}.complete"})
        if step == "lifespan.shutdown":
            return
