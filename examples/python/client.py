"""A worktree, a commit in it, and its branch landed on `main`, over the published Python SDK.

    worktree dev &
    pip install -r requirements.txt
    python client.py /path/to/a/repository
"""

import pathlib
import queue
import subprocess
import sys

from iii import InitOptions, InvocationError, register_worker


def main(repository: str) -> int:
    client = register_worker(options=InitOptions(worker_name="python-example"))
    try:
        return tour(client, repository)
    finally:
        client.shutdown()


def tour(client, repository: str) -> int:
    # A land goes on after its call was answered; how it ended comes as an event.
    ends: queue.Queue = queue.Queue()
    for kind in ("landed", "land-blocked"):

        def heard(event, kind=kind):
            ends.put((kind, event))
            return {}

        client.register_function(f"python-example::on-{kind}", heard)
        client.register_trigger(
            {"type": f"worktree::{kind}", "function_id": f"python-example::on-{kind}", "config": {}}
        )

    def call(function_id, **payload):
        return client.trigger({"function_id": function_id, "payload": payload})

    created = call("worktree::create", repo_path=repository, session_id="python-example")
    worktree_id, path = created["worktree_id"], pathlib.Path(created["path"])
    print(f"created {worktree_id} at {path}")

    (path / "from-python.txt").write_text("hello\n")
    git(path, "add", "from-python.txt")
    git(path, "commit", "--quiet", "--message", "Say hello from Python")

    # A refusal carries its code as data.
    try:
        call("worktree::claim", worktree_id=worktree_id, session_id="somebody-else")
        raise AssertionError("a claim that is held was given away")
    except InvocationError as error:
        if error.code != "W210":
            raise
        print(f"refused with {error.code}")

    queued = call(
        "worktree::land",
        worktree_id=worktree_id,
        target_branch="main",
        test_cmd="test -s from-python.txt",
    )
    print(f"queued as {queued['job_id']}")

    while True:
        kind, event = ends.get(timeout=60)
        if event["worktree_id"] == worktree_id:
            break
    if kind != "landed":
        print(f"blocked: {event['code']}: {event['message']}", file=sys.stderr)
        return 1
    print(f"landed as {event['merged_sha']}")
    return 0


def git(directory: pathlib.Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=directory, check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python client.py /path/to/a/repository")
    sys.exit(main(sys.argv[1]))
