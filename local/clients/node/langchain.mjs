// LangChain and LangGraph of npm on the OpenAI client, with its base URL and key by environment and nothing else changed (S04).
import { HumanMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { MessagesAnnotation, StateGraph } from '@langchain/langgraph';
import { ToolNode, toolsCondition } from '@langchain/langgraph/prebuilt';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { z } from 'zod';
import { calls, checks, replies, version, want } from './suite.mjs';

const check = checks(`@langchain/openai ${version('@langchain/openai')} (npm)`);
const graph = checks(`@langchain/langgraph ${version('@langchain/langgraph')} (npm)`);
const llm = new ChatOpenAI({ model: 'chat-a' });
const asks = { name: 'weather', arguments: '{"city":"Ulm"}' };
const weather = tool(({ city }) => `7 degrees in ${city}`, { name: 'weather', description: 'The weather of a city.', schema: z.object({ city: z.string() }) });

// watched is a configuration that names a lane and notes which one served, and whether the call went through the queue.
function watched(lane) {
  const seen = [];
  return {
    seen,
    configuration: {
      defaultHeaders: { 'X-LLMQ-Lane': lane },
      fetch: async (url, init) => {
        const r = await fetch(url, init);
        seen.push([r.headers.get('x-llmq-lane'), r.headers.get('x-llmq-direct') ?? 'queued']);
        return r;
      },
    },
  };
}

await check('S04: invoke and stream', async () => {
  const got = await llm.invoke('hello');
  want('content', [got.content, got.usage_metadata.total_tokens > 0], ['[fake-chat-1] hello', true]);
  let text = '';
  for await (const c of await llm.stream('one two')) text += c.content;
  want('streamed', text, '[fake-chat-1] one two');
});

await check('S04: batch', async () => {
  const asked = Array.from({ length: 20 }, (_, i) => `number ${i}`);
  const got = await llm.batch(asked);
  want('in order', got.map((m) => m.content), asked.map((q) => `[fake-chat-1] ${q}`));
  want('calls', await calls(), 20);
});

await check('S04: lanes', async () => {
  for (const lane of ['rt', 'bg', 'bulk']) {
    const { seen, configuration } = watched(lane);
    await new ChatOpenAI({ model: 'chat-a', configuration }).invoke('hello');
    want('served', seen, [[lane, 'queued']]);
  }
});

await check('S04: bound tools', async () => {
  await replies([{ tool_calls: [asks] }]);
  const got = await llm.bindTools([weather]).invoke('Weather in Ulm?');
  want('tool call', got.tool_calls.map((t) => [t.name, t.args]), [['weather', { city: 'Ulm' }]]);
});

await check('S04: structured output', async () => {
  const place = z.object({ city: z.string(), degrees: z.number() });
  await replies([{ text: '{"city":"Ulm","degrees":7}' }]);
  want('JSON schema', await llm.withStructuredOutput(place, { method: 'jsonSchema' }).invoke('As JSON'), { city: 'Ulm', degrees: 7 });
  await replies([{ tool_calls: [{ name: 'place', arguments: '{"city":"Ulm","degrees":7}' }] }]);
  want('by a function', await llm.withStructuredOutput(place, { method: 'functionCalling', name: 'place' }).invoke('As JSON'), { city: 'Ulm', degrees: 7 });
});

await graph('S04: tool loop', async () => {
  await replies([{ tool_calls: [asks] }, { text: 'It has 7 degrees.' }]);
  const bound = llm.bindTools([weather]);
  const app = new StateGraph(MessagesAnnotation)
    .addNode('model', async ({ messages }) => ({ messages: [await bound.invoke(messages)] }))
    .addNode('tools', new ToolNode([weather]))
    .addEdge('__start__', 'model')
    .addConditionalEdges('model', toolsCondition)
    .addEdge('tools', 'model')
    .compile();
  const end = await app.invoke({ messages: [new HumanMessage('Weather in Ulm?')] });
  want('messages', end.messages.map((m) => [m.getType(), m.content]), [['human', 'Weather in Ulm?'], ['ai', ''], ['tool', '7 degrees in Ulm'], ['ai', 'It has 7 degrees.']]);
  want('calls', await calls(), 2);
});

await check('S04: queued embeddings', async () => {
  const { seen, configuration } = watched('bg');
  const texts = ['one', 'two', 'three'];
  const got = await new OpenAIEmbeddings({ model: 'emb-a', configuration }).embedDocuments(texts);
  const alone = await Promise.all(texts.map((t) => new OpenAIEmbeddings({ model: 'emb-a' }).embedQuery(t)));
  want('vectors in order', got, alone);
  want('served', seen, [['bg', 'queued']]);
});
