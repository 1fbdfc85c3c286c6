#!/usr/bin/env bash
# The same day as operator-session.sh for a program: JSON and exit codes alone, and no service that runs beside it.
#
# usage: examples/operator-script.sh [REPOSITORY]
#
# With --local the engine and the worker live in each command, on the state in --state-dir.
set -euo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
repository=${1-}
if [ -z "$repository" ]; then
    repository=$scratch/shop
    git init --quiet --initial-branch=main "$repository"
    git -C "$repository" commit --quiet --allow-empty --message 'A shop'
fi

# The first command stores the configuration: worktrees in the scratch directory, and force switched on.
W() { worktree --local --state-dir "$scratch/state" "$@" --json; }
W config worktree_root "$scratch/worktrees" >/dev/null
W config gates.allow_force true >/dev/null

cd "$repository"
# --- README
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
work() { echo "$2" >"$1/$3.txt" && git -C "$1" add --all && git -C "$1" commit --quiet --message "Sell $3"; }
land() { W land "$1" --onto main --test '! grep broken *.txt' --wait; }

one=$(W create one | field path)
two=$(W create two | field path)
three=$(W create three | field path)
work "$one" apples one
work "$two" 'broken pears' two
work "$three" plums three

land one | field merged_sha
land three | field merged_sha
status=0
stopped=$(land two) || status=$?               # 1: refused or stopped; the document says by what
[ "$status" = 1 ] && [ "$(field code <<<"$stopped")" = W411 ] && field output_tail <<<"$stopped"
work "$two" pears two
land two | field merged_sha

four=$(W create four | field path)
echo 'an idea' >"$four/notes"
status=0
W remove four --yes 2>"$scratch/refusal" || status=$?
[ "$status" = 1 ] && [ "$(field code <"$scratch/refusal")" = W220 ]
W remove four --force --yes | field held       # what was in it
W restore four >/dev/null && cat "$four/notes"
W audit verify | field entries

rm "$four/notes"
W remove four --yes --delete-branch | field branch_deleted
W prune --yes | field pruned
W doctor | field problems
# --- README
[ "$(git rev-list --count main --grep='^Sell')" = 4 ]
[ "$(W list)" = '{"unmanaged":[],"worktrees":[]}' ]
status=0
worktree list --url ws://127.0.0.1:9 --json 2>"$scratch/refusal" || status=$?
[ "$status" = 3 ] && [ "$(field code <"$scratch/refusal")" = NO_ENGINE ]
echo "all of it went as it should"
