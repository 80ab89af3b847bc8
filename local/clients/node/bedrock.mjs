// The Bedrock client of npm. Its endpoint and its bearer token come by environment, and Node takes the local authority by
// NODE_EXTRA_CA_CERTS.
import { BedrockRuntimeClient, ConverseCommand, ConverseStreamCommand, InvokeModelCommand, InvokeModelWithResponseStreamCommand } from '@aws-sdk/client-bedrock-runtime';
import { calls, checks, failure, replies, untilCalled, version, want } from './suite.mjs';

const client = new BedrockRuntimeClient();
const check = checks(`@aws-sdk/client-bedrock-runtime ${version('@aws-sdk/client-bedrock-runtime')} (npm)`);
const says = (text, modelId = 'conv-a') => ({ modelId, messages: [{ role: 'user', content: [{ text }] }] });
const tools = (schema, name) => ({ tools: [{ toolSpec: { name, inputSchema: { json: schema } } }] });
const city = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };

// steered sends a command with headers of its own.
function steered(command, headers) {
  command.middlewareStack.add((next) => (args) => {
    Object.assign(args.request.headers, headers);
    return next(args);
  }, { step: 'build' });
  return command;
}

await check('converse', async () => {
  for (const id of ['conv-a', 'conv-a@main', 'fake.converse-v1:0']) {
    const got = await client.send(new ConverseCommand(says('café ☕', id)));
    want('text', got.output.message.content[0].text, '[fake.converse-v1:0] café ☕');
    want('usage', got.usage.totalTokens > 0, true);
  }
});

await check('invoke, and its stream, without a content type', async () => {
  const input = { modelId: 'conv-a', body: JSON.stringify({ anthropic_version: 'bedrock-2023-05-31', max_tokens: 50, messages: [{ role: 'user', content: 'hello' }] }) };
  const got = JSON.parse(new TextDecoder().decode((await client.send(new InvokeModelCommand(input))).body));
  want('text', got.content[0].text, '[fake.converse-v1:0] hello');
  let text = '';
  for await (const event of (await client.send(new InvokeModelWithResponseStreamCommand(input))).body) {
    text += JSON.parse(new TextDecoder().decode(event.chunk.bytes)).delta?.text ?? '';
  }
  want('streamed', text, '[fake.converse-v1:0] hello');
});

await check('headers of one call', async () => {
  await client.send(steered(new ConverseCommand(says('hi')), { 'X-LLMQ-Lane': 'bg' }));
  const e = await failure(client.send(steered(new ConverseCommand(says('hi')), { 'X-LLMQ-Lane': 'fast' })));
  want('error', [e.name, await calls()], ['ValidationException', 1]);
});

await check('tools', async () => {
  await replies([{ tool_calls: [{ name: 'weather', arguments: '{"city":"Ulm"}' }] }]);
  const input = { ...says('Weather?'), toolConfig: tools(city, 'weather') };
  const got = await client.send(new ConverseCommand(input));
  const use = got.output.message.content.find((c) => c.toolUse).toolUse;
  want('use', [got.stopReason, use.name, use.input], ['tool_use', 'weather', { city: 'Ulm' }]);
  input.messages.push(got.output.message, { role: 'user', content: [{ toolResult: { toolUseId: use.toolUseId, content: [{ text: '7 °C' }] } }] });
  want('end', (await client.send(new ConverseCommand(input))).stopReason, 'end_turn');
});

await check('JSON schema, by a tool', async () => {
  await replies([{ tool_calls: [{ name: 'answer', arguments: '{"city":"Ulm"}' }] }]);
  const got = await client.send(new ConverseCommand({ ...says('As JSON'), toolConfig: { ...tools(city, 'answer'), toolChoice: { tool: { name: 'answer' } } } }));
  want('input', got.output.message.content.find((c) => c.toolUse).toolUse.input, { city: 'Ulm' });
});

await check('body of 4 MiB', async () => {
  const got = await client.send(new ConverseCommand({ ...says('short'), system: [{ text: 'x'.repeat(4 * 1024 * 1024 - 200) }] }));
  want('text', got.output.message.content[0].text, '[fake.converse-v1:0] short');
  const e = await failure(client.send(new ConverseCommand({ ...says('short'), system: [{ text: 'x'.repeat(4 * 1024 * 1024) }] })));
  want('more', [e.name, e.$metadata.httpStatusCode, await calls()], ['ValidationException', 413, 1]);
});

await check('stream with usage', async () => {
  let text = '', usage, stop;
  for await (const event of (await client.send(new ConverseStreamCommand(says('one two three')))).stream) {
    text += event.contentBlockDelta?.delta?.text ?? '';
    usage = event.metadata?.usage ?? usage;
    stop = event.messageStop?.stopReason ?? stop;
  }
  want('stream', [text, stop, usage?.totalTokens > 0], ['[fake.converse-v1:0] one two three', 'end_turn', true]);
});

await check('stream that breaks', async () => {
  await replies([{ fail: 'reset', after: 4, text: 'a text that is long enough to be cut in its middle' }]);
  let events = 0;
  const e = await failure((async () => {
    for await (const _ of (await client.send(new ConverseStreamCommand(says('x')))).stream) events++;
  })());
  want('events came before', events > 0, true);
  return e.name;
});

for (const [name, model, error] of [['unknown model', 'conv-b', 'ResourceNotFoundException'], ['wrong wire', 'chat-a', 'ValidationException']]) {
  await check(`error: ${name}`, async () => {
    const e = await failure(client.send(new ConverseCommand(says('x', model))));
    want('error', [e.name, e.$metadata.attempts, await calls()], [error, 1, 0]);
    return `${e.$metadata.httpStatusCode}`;
  });
}

await check('error: wrong key', async () => {
  const e = await failure(new BedrockRuntimeClient({ token: { token: 'llmq_local_none' } }).send(new ConverseCommand(says('x'))));
  want('error', [e.name, e.$metadata.httpStatusCode, e.$metadata.attempts], ['UnrecognizedClientException', 401, 1]);
});

for (const [name, reply, error, seen] of [
  ['provider refuses', { code: 'ValidationException' }, 'ValidationException', 1],
  ['provider: no access', { code: 'AccessDeniedException' }, 'ModelErrorException', 1],
  ['provider fails', { status: 500, times: 20 }, 'ModelErrorException', 3],
]) {
  await check(`error: ${name}`, async () => {
    await replies([reply]);
    const e = await failure(client.send(new ConverseCommand(says(name))));
    want('error', [e.name, e.$metadata.attempts, await calls()], [error, 1, seen]);
    return `${e.$metadata.httpStatusCode}, ${seen} sent to the provider`;
  });
}

await check('error: deadline', async () => {
  await replies([{ hang: true }]);
  const e = await failure(client.send(steered(new ConverseCommand(says('slow')), { 'X-LLMQ-Timeout-Secs': '2' })));
  want('error', [e.name, e.$metadata.attempts, await calls()], ['ModelTimeoutException', 1, 1]);
  return `${e.$metadata.httpStatusCode}`;
});

await check('abort, and taken up again', async () => {
  await replies([{ delay_ms: 2500, text: 'late' }]);
  const key = { 'Idempotency-Key': `node-bedrock-${Date.now()}` }, stop = new AbortController();
  const call = failure(client.send(steered(new ConverseCommand(says('slow')), key), { abortSignal: stop.signal }));
  await untilCalled(1);
  stop.abort();
  const e = await call;
  const got = await client.send(steered(new ConverseCommand(says('slow')), key));
  want('reply and calls', [got.output.message.content[0].text, await calls()], ['late', 1]);
  return e.name;
});

await check('own retries: a throttle', async () => {
  await replies([{ status: 429, headers: { 'retry-after': '3' }, times: 20 }]);
  const began = Date.now();
  const e = await failure(client.send(steered(new ConverseCommand(says('throttled')), { 'X-LLMQ-Timeout-Secs': '2' })));
  want('error', [e.name, e.$metadata.attempts, await calls()], ['ThrottlingException', 3, 3]);
  return `sent 3 times in ${Math.round((Date.now() - began) / 1000)} s`;
});
