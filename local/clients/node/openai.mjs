// The OpenAI client of npm, with its base URL and key by environment and nothing else changed.
import OpenAI from 'openai';
import { calls, checks, failure, replies, untilCalled, version, want } from './suite.mjs';

const client = new OpenAI();
const once = new OpenAI({ maxRetries: 0 });
const check = checks(`openai ${version('openai')} (npm)`);
const says = (content) => ({ model: 'chat-a', messages: [{ role: 'user', content }] });
const weather = {
  type: 'function',
  function: { name: 'weather', description: 'of a city', parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } },
};

await check('chat', async () => {
  const { data, response } = await client.chat.completions.create(says('café ☕ <b>&</b> 🧵')).withResponse();
  want('content', data.choices[0].message.content, '[fake-chat-1] café ☕ <b>&</b> 🧵');
  want('usage', data.usage.total_tokens > 0, true);
  want('x-llmq-target', response.headers.get('x-llmq-target'), 'main');
  return `attempts ${response.headers.get('x-llmq-attempts')}, lane ${response.headers.get('x-llmq-lane')}`;
});

await check('headers of one call', async () => {
  const { response } = await client.chat.completions.create(says('hi'), { headers: { 'X-LLMQ-Lane': 'bulk' } }).withResponse();
  want('lane', response.headers.get('x-llmq-lane'), 'bulk');
});

await check('models', async () => {
  const ids = [];
  for await (const m of client.models.list()) ids.push(m.id);
  want('ids', ids, ['chat-a', 'emb-a', 'conv-a']);
});

await check('tools', async () => {
  await replies([{ tool_calls: [{ name: 'weather', arguments: '{"city":"Ulm"}' }] }]);
  const messages = [{ role: 'user', content: 'Weather in Ulm?' }];
  const asked = (await client.chat.completions.create({ model: 'chat-a', messages, tools: [weather] })).choices[0];
  want('finish', asked.finish_reason, 'tool_calls');
  want('arguments', JSON.parse(asked.message.tool_calls[0].function.arguments), { city: 'Ulm' });
  messages.push(asked.message, { role: 'tool', tool_call_id: asked.message.tool_calls[0].id, content: '7 °C' });
  const told = await client.chat.completions.create({ model: 'chat-a', messages, tools: [weather] });
  want('finish', told.choices[0].finish_reason, 'stop');
});

await check('JSON schema', async () => {
  await replies([{ text: '{"city":"Ulm","degrees":7}' }]);
  const got = await client.chat.completions.parse({
    ...says('Weather as JSON'),
    response_format: { type: 'json_schema', json_schema: { name: 'w', strict: true, schema: { type: 'object', properties: { city: { type: 'string' }, degrees: { type: 'number' } }, required: ['city', 'degrees'], additionalProperties: false } } },
  });
  want('content', JSON.parse(got.choices[0].message.content), { city: 'Ulm', degrees: 7 });
});

await check('body of 4 MiB', async () => {
  const body = { model: 'chat-a', messages: [{ role: 'system', content: '' }, { role: 'user', content: 'short' }] };
  body.messages[0].content = 'x'.repeat(4 * 1024 * 1024 - JSON.stringify(body).length);
  const got = await client.chat.completions.create(body);
  want('content', got.choices[0].message.content, '[fake-chat-1] short');
  body.messages[0].content += 'x';
  const e = await failure(client.chat.completions.create(body));
  want('one byte more', [e.status, e.code, await calls()], [413, 'request_too_large', 1]);
});

await check('stream with usage', async () => {
  let text = '', usage, chunks = 0;
  for await (const c of await client.chat.completions.create({ ...says('one two three'), stream: true, stream_options: { include_usage: true } })) {
    text += c.choices[0]?.delta?.content ?? '';
    usage = c.usage ?? usage;
    chunks++;
  }
  want('text', text, '[fake-chat-1] one two three');
  want('usage', usage?.total_tokens > 0, true);
  return `${chunks} chunks`;
});

await check('stream with tools', async () => {
  await replies([{ tool_calls: [{ name: 'weather', arguments: '{"city":"Ulm"}' }] }]);
  let args = '', finish;
  for await (const c of await client.chat.completions.create({ ...says('Weather?'), tools: [weather], stream: true })) {
    args += c.choices[0]?.delta?.tool_calls?.[0]?.function?.arguments ?? '';
    finish = c.choices[0]?.finish_reason ?? finish;
  }
  want('arguments', [args, finish], ['{"city":"Ulm"}', 'tool_calls']);
});

await check('stream that breaks', async () => {
  await replies([{ fail: 'error', after: 4, text: 'a text that is long enough to be cut in its middle' }]);
  let chunks = 0;
  const e = await failure((async () => {
    for await (const _ of await client.chat.completions.create({ ...says('x'), stream: true })) chunks++;
  })());
  want('chunks came before', chunks > 0, true);
  return `${e.constructor.name}: ${e.code ?? e.message}`;
});

await check('embeddings, floats and base64', async () => {
  const input = ['one', 'two'];
  const floats = await client.embeddings.create({ model: 'emb-a', input, encoding_format: 'float' });
  const raw = await client.embeddings.create({ model: 'emb-a', input, encoding_format: 'base64' });
  const decoded = Array.from(new Float32Array(new Uint8Array(Buffer.from(raw.data[1].embedding, 'base64')).buffer));
  want('the same numbers', decoded, Array.from(new Float32Array(floats.data[1].embedding)));
  const plain = await client.embeddings.create({ model: 'emb-a', input });
  want('by default', plain.data[1].embedding, decoded);
  return `${decoded.length} numbers`;
});

for (const [name, model, options, status, code] of [
  ['unknown model', 'chat-b', {}, 404, 'model_not_found'],
  ['wrong wire', 'conv-a', {}, 400, 'wrong_wire'],
  ['unknown header', 'chat-a', { headers: { 'X-LLMQ-Lanes': 'rt' } }, 400, 'invalid_request'],
]) {
  await check(`error: ${name}`, async () => {
    const e = await failure(client.chat.completions.create({ ...says('x'), model }, options));
    want('error', [e.status, e.code, e.headers.get('x-should-retry'), await calls()], [status, code, 'false', 0]);
    return e.constructor.name;
  });
}

await check('error: wrong key', async () => {
  const e = await failure(new OpenAI({ apiKey: 'llmq_local_none' }).chat.completions.create(says('x')));
  want('error', [e.status, e.code, e.constructor.name], [401, 'invalid_api_key', 'AuthenticationError']);
});

for (const [name, reply, status, code, seen] of [
  ['provider refuses', { status: 400 }, 400, 'provider_rejected', 1],
  ['provider: no access', { status: 401 }, 502, 'provider_auth_failed', 1],
  ['provider: no money', { code: 'insufficient_quota' }, 429, 'insufficient_quota', 1],
  ['provider fails', { status: 500, times: 20 }, 502, 'provider_error', 3],
]) {
  await check(`error: ${name}`, async () => {
    await replies([reply]);
    const e = await failure(client.chat.completions.create(says(name)));
    want('error', [e.status, e.code, e.headers.get('x-should-retry')], [status, code, 'false']);
    want('calls of the provider', await calls(), seen); // ours; the client repeats nothing
    return `${e.constructor.name}, ${seen} sent to the provider`;
  });
}

await check('error: deadline', async () => {
  await replies([{ hang: true }]);
  const e = await failure(client.chat.completions.create(says('slow'), { headers: { 'X-LLMQ-Timeout-Secs': '1' } }));
  want('error', [e.status, e.headers.get('x-should-retry')], [504, 'false']);
  want('calls of the provider', await calls(), 1);
  return e.code;
});

await check('same key, once; another body is 422', async () => {
  const key = `node-${Date.now()}`, options = { headers: { 'Idempotency-Key': key } };
  const [a, b] = await Promise.all([client.chat.completions.create(says('same'), options), client.chat.completions.create(says('same'), options)]);
  want('the same reply', a, b);
  const e = await failure(client.chat.completions.create(says('other'), options));
  want('error', [e.status, e.code, await calls()], [422, 'idempotency_mismatch', 1]);
});

await check('abort, and taken up again', async () => {
  await replies([{ delay_ms: 1500, text: 'late' }]);
  const options = { headers: { 'Idempotency-Key': `node-abort-${Date.now()}` } };
  const stop = new AbortController();
  const call = failure(client.chat.completions.create(says('slow'), { ...options, signal: stop.signal }));
  await untilCalled(1);
  stop.abort();
  const e = await call;
  const got = await client.chat.completions.create(says('slow'), options);
  want('reply and calls', [got.choices[0].message.content, await calls()], ['late', 1]);
  return e.constructor.name;
});

await check('abort of a stream', async () => {
  await replies([{ text: 'word '.repeat(200) }]);
  const stream = await client.chat.completions.create({ ...says('x'), stream: true });
  let n = 0;
  for await (const _ of stream) if (++n === 3) break;
  want('chunks', n, 3);
});

// The deadline is before the time that the provider asks for, so that llmq doesn't wait for it and the client does.
await check('own retries: a throttle', async () => {
  const throttle = [{ status: 429, headers: { 'retry-after': '3' }, times: 20 }], options = { headers: { 'X-LLMQ-Timeout-Secs': '2' } };
  await replies(throttle);
  const one = await failure(once.chat.completions.create(says('throttled'), options));
  want('error', [one.status, one.code, one.headers.get('x-should-retry'), one.headers.get('retry-after'), await calls()], [429, 'rate_limited', 'true', '3', 1]);
  await replies(throttle);
  const began = Date.now();
  await failure(client.chat.completions.create(says('throttled'), options));
  const sent = await calls();
  want('sent', sent, 3);
  return `${one.constructor.name}; sent ${sent} times in ${Math.round((Date.now() - began) / 1000)} s`;
});
