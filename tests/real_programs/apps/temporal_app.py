"""Temporal on goloop, as far as it goes without its server: an activity, a client, a workflow.

The client talks to a server of this program's own, which starts nothing.  The workflow is replayed
from a history, in Temporal's sandbox and on the loop that this has.
"""

import asyncio
import base64
import json
from concurrent.futures import ThreadPoolExecutor

from loop_name import loop_name
from temporalio import activity, workflow

# Passed through the sandbox, in which every workflow would import them again.
with workflow.unsafe.imports_passed_through():
    import grpc
    from temporalio.api.workflowservice.v1 import request_response_pb2 as messages
    from temporalio.api.workflowservice.v1 import service_pb2_grpc as services
    from temporalio.client import Client, WorkflowHistory
    from temporalio.testing import ActivityEnvironment
    from temporalio.worker import Replayer

    import goloop


def say(what):
    print(f"{what}: {loop_name()}", flush=True)


@activity.defn
async def greet(name: str) -> str:
    await asyncio.sleep(0.01)
    say("activity")
    return f"Hello, {name}"


@workflow.defn
class Greeting:
    @workflow.run
    async def run(self, name: str) -> str:
        say("workflow")
        await asyncio.sleep(0)
        return name


class Server(services.WorkflowServiceServicer):
    def GetSystemInfo(self, request, context):
        return messages.GetSystemInfoResponse()

    def StartWorkflowExecution(self, request, context):
        return messages.StartWorkflowExecutionResponse(run_id=f"run of {request.workflow_id}")


def history():
    """Of a workflow that was given a name, and returned it."""
    payload = {
        "metadata": {"encoding": base64.b64encode(b"json/plain").decode()},
        "data": base64.b64encode(b'"you"').decode(),
    }
    started = {
        "workflowType": {"name": "Greeting"}, "taskQueue": {"name": "queue"},
        "input": {"payloads": [payload]}, "originalExecutionRunId": "run",
        "firstExecutionRunId": "run", "attempt": 1, "workflowTaskTimeout": "10s",
    }  # fmt: skip
    events = [
        ("WorkflowExecutionStarted", started),
        ("WorkflowTaskScheduled", {"taskQueue": {"name": "queue"}, "attempt": 1}),
        ("WorkflowTaskStarted", {"scheduledEventId": "2"}),
        ("WorkflowTaskCompleted", {"scheduledEventId": "2", "startedEventId": "3"}),
        ("WorkflowExecutionCompleted", {"workflowTaskCompletedEventId": "4"}),
    ]
    told = []
    for number, (kind, attributes) in enumerate(events, 1):
        words = "".join(f"_{c}" if c.isupper() else c.upper() for c in kind).upper()
        told.append({
            "eventId": str(number), "eventTime": "2026-01-01T00:00:00Z",
            "eventType": f"EVENT_TYPE{words}",
            kind[0].lower() + kind[1:] + "EventAttributes": attributes,
        })  # fmt: skip
    return WorkflowHistory.from_json("greeting", json.dumps({"events": told}))


async def main():
    say("main")
    assert await ActivityEnvironment().run(greet, "you") == "Hello, you"
    server = grpc.server(ThreadPoolExecutor(2))
    services.add_WorkflowServiceServicer_to_server(Server(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    client = await Client.connect(f"127.0.0.1:{port}")
    handles = await asyncio.gather(
        *(
            client.start_workflow("Greeting", "you", id=f"id-{number}", task_queue="queue")
            for number in range(10)
        )
    )
    assert [each.result_run_id for each in handles] == [f"run of id-{n}" for n in range(10)]
    server.stop(None).wait()
    say("client")
    replayed = await Replayer(workflows=[Greeting]).replay_workflow(history())
    assert replayed.replay_failure is None
    say("replayed")


if __name__ == "__main__":
    goloop.run(main())
