// openai for Node over chat completions and Responses.
import { HELLO, STRUCTURED, TOOL, UNKNOWN, apiKey, dialect, load, model, refused, report, url, weather } from "./steps.mjs";

const { OpenAI } = await load("openai");
const { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } = await load("openai/helpers/zod");
const { z } = await load("zod");
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey });
const City = z.object({ name: z.string(), people: z.int() });
const described = { name: "weather", description: "Tell the weather.", parameters: z.object({ city: z.string() }) };

const store = false;
const user = (content) => [{ role: "user", content }];

function chat() {
  const said = (made) => ({
    text: made.choices[0].message.content,
    tokens: [made.usage.prompt_tokens, made.usage.completion_tokens],
    cost: made.usage.cost,
  });
  const gathered = (asked) =>
    client.chat.completions.stream({ ...asked, stream_options: { include_usage: true } }).finalChatCompletion();
  const whole = (asked) => client.chat.completions.create(asked);

  async function roundTrip(ask) {
    const messages = user(TOOL);
    const tools = [zodFunction(described)];
    const { message } = (await ask({ model, messages, tools })).choices[0];
    messages.push(message);
    const calls = message.tool_calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]);
    message.tool_calls.forEach((call, at) => messages.push({ role: "tool", tool_call_id: call.id, content: weather(calls[at][1]) }));
    return { calls, text: (await ask({ model, messages, tools })).choices[0].message.content };
  }

  return {
    plain: async () => said(await whole({ model, messages: user(HELLO) })),
    streamed: async () => said(await gathered({ model, messages: user(HELLO) })),
    tool: () => roundTrip(whole),
    streamed_tool: () => roundTrip(gathered),
    structured: async () => {
      const format = { response_format: zodResponseFormat(City, "city") };
      return (await client.chat.completions.parse({ model, messages: user(STRUCTURED), ...format })).choices[0].message.parsed;
    },
    refused: () => refused(() => whole({ model: UNKNOWN, messages: user(HELLO) })),
  };
}

function responses() {
  const said = (made) => ({
    text: made.output_text,
    tokens: [made.usage.input_tokens, made.usage.output_tokens],
    cost: made.usage.cost,
  });
  const whole = (asked) => client.responses.create({ model, store, ...asked });
  const gathered = (asked) => client.responses.stream({ model, store, ...asked }).finalResponse();
  const text = (response) => response.output_text;

  async function roundTrip(ask) {
    const input = user(TOOL);
    const tools = [zodResponsesFunction(described)];
    const { output } = await ask({ input, tools });
    const asked = output.filter((item) => item.type === "function_call");
    const calls = asked.map((call) => [call.name, JSON.parse(call.arguments)]);
    const told = asked.map(({ call_id }, at) => ({ type: "function_call_output", call_id, output: weather(calls[at][1]) }));
    return { calls, text: text(await ask({ input: [...input, ...output, ...told], tools })) };
  }

  return {
    plain: async () => said(await whole({ input: HELLO })),
    streamed: async () => said(await gathered({ input: HELLO })),
    tool: () => roundTrip(whole),
    streamed_tool: () => roundTrip(gathered),
    structured: async () => {
      const format = { text: { format: zodTextFormat(City, "city") } };
      return (await client.responses.parse({ model, store, input: STRUCTURED, ...format })).output_parsed;
    },
    refused: () => refused(() => whole({ model: UNKNOWN, input: HELLO })),
  };
}

await report(dialect === "chat" ? chat() : responses());
