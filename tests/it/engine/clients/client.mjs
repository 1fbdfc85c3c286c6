// A client of the embedded engine on the published Node SDK: registers functions, calls, gets an error code, hears of
// a state change, and comes back after the engine was restarted.
//
// Start an engine, then: III_URL=ws://127.0.0.1:49134 node client.mjs
// It calls `it::refuse`, which somebody else serves and which fails with the code W210.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { registerWorker, TriggerAction } from 'iii-sdk'

const worker = registerWorker(process.env.III_URL ?? 'ws://127.0.0.1:49134', {
  workerName: 'node-client',
  otel: { enabled: false },
})

const events = []
worker.registerFunction('client::double', async ({ n }) => ({ n: 2 * n }))
worker.registerFunction('client::fail', async () => {
  throw new Error('out of luck')
})
worker.registerFunction('client::on', async (event) => {
  events.push(event)
  return null
})
worker.registerTrigger({ type: 'state', function_id: 'client::on', config: { scope: 'node' } })

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function until(what, condition) {
  for (let tries = 0; tries < 600; tries += 1) {
    if (await condition()) return
    await pause(100)
  }
  throw new Error(`waited too long for ${what}`)
}

const double = (n) =>
  worker.trigger({ function_id: 'client::double', payload: { n }, timeoutMs: 2000 }).then(
    (answer) => answer.n,
    () => null,
  )

async function check(round) {
  await until('its own function', async () => (await double(round)) === 2 * round)
  events.length = 0
  const payload = { scope: 'node', key: 'k', value: round }
  const set = await worker.trigger({ function_id: 'state::set', payload })
  assert.equal(set.new_value, round)
  await until('the event', () => events.some((event) => event.new_value === round))
  const receipt = await worker.trigger({
    function_id: 'client::on',
    payload: { queued: round },
    action: TriggerAction.Enqueue({ queue: 'default' }),
  })
  assert.ok(receipt.messageReceiptId)
  await until('the message', () => events.some((event) => event.queued === round))
}

await check(1)
await assert.rejects(worker.trigger({ function_id: 'it::refuse', payload: {} }), (error) => error.code === 'W210')
console.log('before the restart: ok')

// Whoever runs this restarts the engine and then says so. The connection is gone, until the SDK has made another.
await once(process.stdin, 'data')
await check(2)
console.log('after the restart: ok')
await worker.shutdown()
process.exit(0)
