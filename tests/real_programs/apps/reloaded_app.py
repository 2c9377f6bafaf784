"""An application that uvicorn reloads after a test has changed its version."""

from fastapi_app import app


@app.get("/version")
async def version():
    return "first"
