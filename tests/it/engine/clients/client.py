"""A client of the embedded engine on the published Python SDK.

It registers functions, calls, gets an error code, hears of a state change, and comes back after the engine was
restarted. Start an engine, then: III_URL=ws://127.0.0.1:49134 python client.py
It calls `it::refuse`, which somebody else serves and which fails with the code W210.
"""

import os
import sys
import time

from iii import InitOptions, InvocationError, TriggerAction, register_worker

worker = register_worker(
    os.environ.get("III_URL", "ws://127.0.0.1:49134"),
    InitOptions(worker_name="python-client", otel={"enabled": False}),
)
events = []


async def double(data):
    return {"n": 2 * data["n"]}


async def fail(_data):
    raise RuntimeError("out of luck")


async def on(event):
    events.append(event)


worker.register_function("client::double", double)
worker.register_function("client::fail", fail)
worker.register_function("client::on", on)
worker.register_trigger({"type": "state", "function_id": "client::on", "config": {"scope": "python"}})


def until(what, condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise TimeoutError(f"waited too long for {what}")


def doubled(number):
    call = {"function_id": "client::double", "payload": {"n": number}, "timeout_ms": 2000}
    try:
        return worker.trigger(call)["n"]
    except Exception:
        return None


def check(number):
    until("its own function", lambda: doubled(number) == 2 * number)
    events.clear()
    payload = {"scope": "python", "key": "k", "value": number}
    answer = worker.trigger({"function_id": "state::set", "payload": payload})
    assert answer["new_value"] == number, answer
    until("the event", lambda: any(event.get("new_value") == number for event in events))
    action = TriggerAction.Enqueue(queue="default")
    receipt = worker.trigger({"function_id": "client::on", "payload": {"queued": number}, "action": action})
    assert receipt["messageReceiptId"], receipt
    until("the message", lambda: any(event.get("queued") == number for event in events))


check(1)
try:
    worker.trigger({"function_id": "it::refuse", "payload": {}})
    raise AssertionError("it::refuse did not refuse")
except InvocationError as error:
    assert error.code == "W210", error
print("before the restart: ok", flush=True)

# Whoever runs this restarts the engine and then says so. The connection is gone, until the SDK has made another.
sys.stdin.readline()
check(2)
print("after the restart: ok", flush=True)
worker.shutdown()
