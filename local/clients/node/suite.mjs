// What the checks share: they run one after the other, and each prints its result as one line of JSON.
import { readFileSync } from 'node:fs';

export function version(name) {
  return JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
}

// replies says what the provider answers next, as fakellm's programs have it; [] is what it answers by itself. It counts anew.
export async function replies(list = []) {
  const r = await fetch(`${process.env.PROVIDER_URL}/replies`, { method: 'POST', body: JSON.stringify(list) });
  if (!r.ok) throw new Error(`replies: ${await r.text()}`);
}

// calls is how often the provider was called since.
export async function calls() {
  return (await fetch(`${process.env.PROVIDER_URL}/calls`)).json();
}

export function want(what, got, expected) {
  if (JSON.stringify(got) !== JSON.stringify(expected)) {
    throw new Error(`${what}: got ${JSON.stringify(got)?.slice(0, 300)}, want ${JSON.stringify(expected)?.slice(0, 300)}`);
  }
}

export async function failure(promise) {
  try {
    await promise;
  } catch (e) {
    return e;
  }
  throw new Error('no error came');
}

// eventually waits until the provider was called so often.
export async function untilCalled(n) {
  for (let i = 0; i < 400; i++) {
    if ((await calls()) >= n) return;
    await new Promise((r) => setTimeout(r, 25));
  }
  throw new Error(`the provider was not called ${n} times`);
}

// overdue ends a check that hangs: what a client waits for then is told by its failure.
function overdue() {
  return new Promise((_, reject) => setTimeout(() => reject(new Error('it took more than 60 s')), 60_000).unref());
}

export function checks(client) {
  return async (check, run) => {
    if (!check.startsWith(process.env.CHECKS ?? '')) return; // those of one scenario
    const began = Date.now();
    let ok = true, note;
    try {
      await replies();
      note = (await Promise.race([run(), overdue()])) ?? '';
    } catch (e) {
      ok = false;
      note = e.stack ?? String(e);
    }
    console.log(JSON.stringify({ client, check, ok, note: `${note} (${Date.now() - began} ms)` }));
  };
}
