// The official OpenAI SDK against a running worker: node client.mjs BASE_URL
// Exits 0 when everything it expects of the API holds; prints one line for each check.
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const baseURL = process.argv[2];
assert.ok(baseURL, 'usage: node client.mjs BASE_URL');
const client = new OpenAI({ baseURL: `${baseURL}/v1`, apiKey: 'unused', maxRetries: 0 });
const messages = [{ role: 'user', content: 'Tell me a story.' }];
const checks = [];
const check = (name, body) => checks.push([name, body]);

async function health() {
  return (await fetch(`${baseURL}/health`)).json();
}

async function untilIdle() {
  for (let i = 0; i < 1000; ++i) {
    const report = await health();
    if (report.slots_busy === 0 && report.kv_blocks_free === report.kv_blocks_total) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.fail('the worker did not become idle');
}

let model = '';

check('models', async () => {
  const list = await client.models.list();
  assert.equal(list.data.length, 1);
  model = list.data[0].id;
  const one = await client.models.retrieve(model);
  assert.equal(one.object, 'model');
  await assert.rejects(client.models.retrieve('other'), OpenAI.NotFoundError);
});

check('chat', async () => {
  const answer = await client.chat.completions.create({
    model, messages, max_tokens: 12, temperature: 0, logprobs: true, top_logprobs: 3 });
  assert.equal(answer.object, 'chat.completion');
  assert.equal(answer.choices[0].finish_reason, 'length');
  assert.equal(answer.choices[0].message.role, 'assistant');
  assert.equal(answer.usage.completion_tokens, 12);
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + 12);
  assert.equal(answer.choices[0].logprobs.content.length, 12);
  assert.equal(answer.choices[0].logprobs.content[0].top_logprobs.length, 3);
  // The answer can be sent back as part of the conversation.
  await client.chat.completions.create({
    model, messages: [...messages, answer.choices[0].message, ...messages], max_tokens: 2 });
});

check('chat stream says what the whole answer says', async () => {
  const settings = { model, messages, max_tokens: 20, seed: 7 };
  const whole = await client.chat.completions.create(settings);
  const stream = await client.chat.completions.create({
    ...settings, stream: true, stream_options: { include_usage: true } });
  let text = '';
  let finish = null;
  let usage = null;
  for await (const chunk of stream) {
    assert.equal(chunk.object, 'chat.completion.chunk');
    text += chunk.choices[0]?.delta?.content ?? '';
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(finish, whole.choices[0].finish_reason);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

check('the stream helper of the SDK', async () => {
  const runner = client.chat.completions.stream({ model, messages, max_tokens: 8, temperature: 0 });
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices[0].message.role, 'assistant');
  assert.ok(final.choices[0].message.content.length > 0);
});

check('two choices', async () => {
  const answer = await client.chat.completions.create({ model, messages, max_tokens: 20, n: 2, seed: 1 });
  assert.deepEqual(answer.choices.map((choice) => choice.index), [0, 1]);
  assert.notEqual(answer.choices[0].message.content, answer.choices[1].message.content);
});

check('structured output', async () => {
  const schema = { type: 'object', properties: { good: { type: 'boolean' }, tone: { enum: ['warm', 'cold'] } },
    required: ['good', 'tone'], additionalProperties: false };
  const answer = await client.chat.completions.create({
    model, messages, response_format: { type: 'json_schema', json_schema: { name: 'verdict', strict: true, schema } } });
  const value = JSON.parse(answer.choices[0].message.content);
  assert.equal(typeof value.good, 'boolean');
  assert.ok(['warm', 'cold'].includes(value.tone));
});

check('tools reach the template', async () => {
  const tools = [{ type: 'function', function: { name: 'look_up', parameters: { type: 'object', properties: {} } } }];
  const without = await client.chat.completions.create({ model, messages, max_tokens: 1 });
  const with_ = await client.chat.completions.create({ model, messages, max_tokens: 1, tools });
  const none = await client.chat.completions.create({ model, messages, max_tokens: 1, tools, tool_choice: 'none' });
  assert.ok(with_.usage.prompt_tokens > without.usage.prompt_tokens);
  assert.equal(none.usage.prompt_tokens, without.usage.prompt_tokens);
});

check('completions', async () => {
  const answer = await client.completions.create({
    model, prompt: ['Once', 'Twice'], max_tokens: 5, temperature: 0, logprobs: 2 });
  assert.equal(answer.choices.length, 2);
  assert.equal(answer.choices[0].logprobs.tokens.length, 5);
  assert.equal(answer.choices[0].logprobs.tokens.join(''), answer.choices[0].text);
  let text = '';
  for await (const chunk of await client.completions.create({
    model, prompt: 'Once', max_tokens: 5, temperature: 0, stream: true })) {
    text += chunk.choices[0].text;
  }
  assert.equal(text, answer.choices[0].text);
});

check('embeddings, which the SDK asks for in base64', async () => {
  const short = await client.embeddings.create({ model, input: ['one', 'two', 'one'] });
  const plain = await client.embeddings.create({ model, input: 'one', encoding_format: 'float' });
  assert.equal(short.data.length, 3);
  const norm = Math.hypot(...short.data[0].embedding);
  assert.ok(Math.abs(norm - 1) < 1e-4, `length ${norm}`);
  short.data[0].embedding.forEach((value, i) => assert.ok(Math.abs(value - plain.data[0].embedding[i]) < 1e-6));
  assert.deepEqual(short.data[0].embedding, short.data[2].embedding);
});

check('errors have the shape the SDK knows', async () => {
  const wrong = (more) => client.chat.completions.create({ model, messages, ...more });
  await assert.rejects(wrong({ temperature: 3 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, 'temperature');
    assert.equal(error.type, 'invalid_request_error');
    return true;
  });
  await assert.rejects(wrong({ modalities: ['audio'] }), (error) => error.param === 'modalities');
  await assert.rejects(wrong({ surprise: 1 }), (error) => error.param === 'surprise');
  await assert.rejects(wrong({ model: 'other' }), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, 'model_not_found');
    return true;
  });
  await assert.rejects(client.embeddings.create({ model, input: 'x', dimensions: 1000000 }),
    (error) => error.param === 'dimensions');
  // Bookkeeping changes nothing.
  await wrong({ max_tokens: 1, user: 'u', metadata: { a: 'b' }, store: true, service_tier: 'auto' });
});

check('dimensions shorten a vector', async () => {
  const answer = await client.embeddings.create({ model, input: 'x', dimensions: 3, encoding_format: 'float' });
  assert.equal(answer.data[0].embedding.length, 3);
  const length = Math.hypot(...answer.data[0].embedding);
  assert.ok(Math.abs(length - 1) < 1e-4, `length ${length}`);
});

const weather = { type: 'function', function: { name: 'get_weather', strict: true, parameters: {
  type: 'object', additionalProperties: false, required: ['unit', 'mail'], properties: {
    unit: { enum: ['celsius', 'fahrenheit'] },
    mail: { type: 'string', maxLength: 20, pattern: '^(?!\\.)(?!.*\\.\\.)[a-z.]{1,5}@([a-z]{1,5}\\.)[a-z]{2,3}$' } } } } };

function checkCall(call) {
  assert.equal(call.type, 'function');
  assert.equal(call.function.name, 'get_weather');
  const given = JSON.parse(call.function.arguments);
  assert.ok(['celsius', 'fahrenheit'].includes(given.unit), call.function.arguments);
  assert.match(given.mail, /^(?!\.)(?!.*\.\.)[a-z.]{1,5}@([a-z]{1,5}\.)[a-z]{2,3}$/);
}

check('a call that must be made is one', async () => {
  for (const tool_choice of ['required', { type: 'function', function: { name: 'get_weather' } }]) {
    const answer = await client.chat.completions.create({
      model, messages, tools: [weather], tool_choice, parallel_tool_calls: false });
    assert.equal(answer.choices[0].finish_reason, 'tool_calls');
    assert.equal(answer.choices[0].message.content, null);
    assert.equal(answer.choices[0].message.tool_calls.length, 1);
    checkCall(answer.choices[0].message.tool_calls[0]);
  }
});

check("the SDK's own helper puts a streamed call together", async () => {
  const stream = client.chat.completions.stream({
    model, messages, tools: [weather], tool_choice: 'required', parallel_tool_calls: false });
  const answer = await stream.finalChatCompletion();
  assert.equal(answer.choices[0].finish_reason, 'tool_calls');
  checkCall(answer.choices[0].message.tool_calls[0]);
});

check('a call and its result can be sent back', async () => {
  const call = { id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{}' } };
  const answer = await client.chat.completions.create({
    model, max_tokens: 2, tools: [weather],
    messages: [...messages, { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: 'call_1', content: '20' }] });
  assert.equal(answer.object, 'chat.completion');
});

check('abort stops the worker', async () => {
  const stream = await client.chat.completions.create({
    model, messages, temperature: 0, stream: true });
  for await (const chunk of stream) {
    if (chunk.choices[0].delta.content) break;  // leaving the loop aborts the request
  }
  await untilIdle();
  const controller = new AbortController();
  const pending = client.chat.completions.create(
    { model, messages, temperature: 0 }, { signal: controller.signal });
  setTimeout(() => controller.abort(), 20);
  await assert.rejects(pending, OpenAI.APIUserAbortError);
  await untilIdle();
});

let failures = 0;
for (const [name, body] of checks) {
  try {
    await body();
    console.log(`ok      ${name}`);
  } catch (error) {
    ++failures;
    console.log(`FAILED  ${name}: ${error?.stack ?? error}`);
  }
}
process.exit(failures === 0 ? 0 : 1);
