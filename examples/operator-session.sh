#!/usr/bin/env bash
# A day of an operator: three worktrees, two land, one is stopped and fixed, one is removed by force and comes back.
#
# usage: examples/operator-session.sh [REPOSITORY]
#
# Works on a branch `main` of the repository, which gets three commits; on one of its own when none is named. The
# binary is the `worktree` on the PATH. State and worktrees lie in a temporary directory that goes at the end.
set -euo pipefail

scratch=$(mktemp -d)
dev=
end() {
    if [ -n "$dev" ]; then kill "$dev" 2>/dev/null || true; wait "$dev" || true; fi
    rm -rf "$scratch"
}
trap end EXIT
repository=${1-}
if [ -z "$repository" ]; then
    repository=$scratch/shop
    git init --quiet --initial-branch=main "$repository"
    git -C "$repository" commit --quiet --allow-empty --message 'A shop'
fi
printf 'worktree_root: %s\n' "$scratch/worktrees" >"$scratch/seed.yaml"

# In another terminal this is just `worktree dev`; on ports of its own, the others have to be told where it is.
worktree dev --port 0 --http-port 0 --state-dir "$scratch/state" --config "$scratch/seed.yaml" >"$scratch/ready" 2>"$scratch/log" &
dev=$!
until [ -s "$scratch/ready" ]; do kill -0 "$dev"; sleep 0.1; done
III_URL=$(sed 's/.*"url":"\([^"]*\)".*/\1/' "$scratch/ready")
export III_URL

cd "$repository"
set -x
# --- README
one=$(worktree create one --session ada)       # three places to work in, each on a branch of its own
two=$(worktree create two --session ben)
three=$(worktree create three)
worktree list

echo 'apples' >"$one/one.txt"                  # work is done as everywhere: edit, add, commit
git -C "$one" add one.txt && git -C "$one" commit --quiet --message 'Sell apples'
echo 'broken pears' >"$two/two.txt"            # what the tests will not like
git -C "$two" add two.txt && git -C "$two" commit --quiet --message 'Sell pears'
echo 'plums' >"$three/three.txt"
git -C "$three" add three.txt && git -C "$three" commit --quiet --message 'Sell plums'

worktree land one --test '! grep broken *.txt' --wait
worktree land three --test '! grep broken *.txt' --wait
worktree land two --test '! grep broken *.txt' --wait || echo "exit code $?: stopped, and the reason was told"
worktree status two

echo 'pears' >"$two/two.txt"
git -C "$two" commit --quiet --all --message 'Mend the pears'
worktree land two --test '! grep broken *.txt' --wait

four=$(worktree create four)
echo 'an idea' >"$four/notes"
worktree remove four --yes || echo "exit code $?: refused, it holds a file that is nowhere else"
worktree config gates.allow_force true         # what can lose work is off until it is switched on
worktree remove four --force --yes             # tells what goes; without --yes it asks
worktree restore four                          # and back it is
cat "$four/notes"
worktree audit verify                          # nobody has touched the log of what went

rm "$four/notes"
worktree remove four --yes --delete-branch
worktree prune --yes
worktree doctor
# --- README
set +x
[ "$(git rev-list --count main --grep='^Sell')" = 3 ]
[ "$(worktree list --json)" = '{"unmanaged":[],"worktrees":[]}' ]
echo "all of it went as it should"
