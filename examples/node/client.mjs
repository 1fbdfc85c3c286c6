// A worktree, a commit in it, and its branch landed on `main`, over the published Node SDK.
//
//   worktree dev &
//   npm install && node client.mjs /path/to/a/repository

import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { InvocationError, registerWorker } from 'iii-sdk'

const repository = process.argv[2]
if (!repository) {
  console.error('usage: node client.mjs /path/to/a/repository')
  process.exit(2)
}

const client = registerWorker(process.env.III_URL ?? 'ws://127.0.0.1:49134')

// A land goes on after its call was answered; how it ended comes as an event.
const ends = []
let wake = () => {}
for (const kind of ['landed', 'land-blocked']) {
  client.registerFunction(`node-example::on-${kind}`, async (event) => {
    ends.push({ kind, event })
    wake()
    return {}
  })
  client.registerTrigger({ type: `worktree::${kind}`, function_id: `node-example::on-${kind}`, config: {} })
}

async function endOf(worktreeId) {
  for (;;) {
    const end = ends.find(({ event }) => event.worktree_id === worktreeId)
    if (end) return end
    await new Promise((resolve) => (wake = resolve))
  }
}

function git(directory, ...args) {
  execFileSync('git', args, { cwd: directory, stdio: 'inherit' })
}

const call = (function_id, payload) => client.trigger({ function_id, payload })

const created = await call('worktree::create', { repo_path: repository, session_id: 'node-example' })
console.log(`created ${created.worktree_id} at ${created.path}`)

writeFileSync(join(created.path, 'from-node.txt'), 'hello\n')
git(created.path, 'add', 'from-node.txt')
git(created.path, 'commit', '--quiet', '--message', 'Say hello from Node')

// A refusal carries its code as data.
try {
  await call('worktree::claim', { worktree_id: created.worktree_id, session_id: 'somebody-else' })
  throw new Error('a claim that is held was given away')
} catch (error) {
  if (!(error instanceof InvocationError) || error.code !== 'W210') throw error
  console.log(`refused with ${error.code}`)
}

const queued = await call('worktree::land', {
  worktree_id: created.worktree_id,
  target_branch: 'main',
  test_cmd: 'test -s from-node.txt',
})
console.log(`queued as ${queued.job_id}`)

const { kind, event } = await endOf(created.worktree_id)
if (kind === 'landed') {
  console.log(`landed as ${event.merged_sha}`)
} else {
  console.error(`blocked: ${event.code}: ${event.message}`)
  process.exitCode = 1
}
await client.shutdown()
process.exit()
