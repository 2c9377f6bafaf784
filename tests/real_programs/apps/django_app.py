"""A Django project in one file: `application` for an ASGI server, or manage.py's commands.

Its commands run on goloop by themselves if INSTALL is set.
"""

import asyncio
import os
import sys

import django
from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.http import JsonResponse, StreamingHttpResponse
from django.urls import path
from loop_name import loop_name


async def index(request):
    return JsonResponse({"loop": loop_name(), "pid": os.getpid()})


async def ask():
    await asyncio.sleep(0)
    return loop_name()


def sync(request):
    """A view that is no coroutine, and calls one."""
    return JsonResponse({"loop": async_to_sync(ask)()})


async def there_and_back(request):
    """From the loop into a thread, and from there to a loop."""
    return JsonResponse({"loop": await sync_to_async(async_to_sync(ask))()})


async def stream(request):
    async def parts():
        for number in range(3):
            await asyncio.sleep(0)
            yield f"{loop_name()} {number}\n"

    return StreamingHttpResponse(parts())


urlpatterns = [
    path("", index),
    path("sync", sync),
    path("there-and-back", there_and_back),
    path("stream", stream),
]

settings.configure(
    ALLOWED_HOSTS=["*"], DEBUG=True, ROOT_URLCONF=__name__, SECRET_KEY="of a test", USE_TZ=True
)
django.setup()

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    if "INSTALL" in os.environ:
        import goloop

        goloop.install()
    execute_from_command_line(sys.argv)
else:
    from django.core.asgi import get_asgi_application

    application = get_asgi_application()
