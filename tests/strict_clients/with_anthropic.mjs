// Anthropic's client for Node.
import { HELLO, MAX_TOKENS, STRUCTURED, TOOL, UNKNOWN, apiKey, load, model, refused, report, url, weather } from "./steps.mjs";

const { Anthropic } = await load("@anthropic-ai/sdk");
const { zodOutputFormat } = await load("@anthropic-ai/sdk/helpers/zod");
const { z } = await load("zod");
const client = new Anthropic({ baseURL: url, apiKey });
const City = z.object({ name: z.string(), people: z.int() });
const input_schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ name: "weather", description: "Tell the weather.", input_schema }];

const always = { model, max_tokens: MAX_TOKENS };
const user = (content) => [{ role: "user", content }];
const text = ({ content }) => content.filter((block) => block.type === "text").map((block) => block.text).join("");
const said = (made) => ({ text: text(made), tokens: [made.usage.input_tokens, made.usage.output_tokens], cost: made.usage.cost });
const whole = (asked) => client.messages.create({ ...always, ...asked });
const gathered = (asked) => client.messages.stream({ ...always, ...asked }).finalMessage();

async function roundTrip(ask) {
  const messages = user(TOOL);
  const { content } = await ask({ messages, tools });
  const asked = content.filter((block) => block.type === "tool_use");
  const told = asked.map(({ id, input }) => ({ type: "tool_result", tool_use_id: id, content: weather(input) }));
  messages.push({ role: "assistant", content }, ...user(told));
  return { calls: asked.map(({ name, input }) => [name, input]), text: text(await ask({ messages, tools })) };
}

await report({
  plain: async () => said(await whole({ messages: user(HELLO) })),
  streamed: async () => said(await gathered({ messages: user(HELLO) })),
  tool: () => roundTrip(whole),
  streamed_tool: () => roundTrip(gathered),
  structured: async () => {
    const output_config = { format: zodOutputFormat(City) };
    return (await client.messages.parse({ ...always, messages: user(STRUCTURED), output_config })).parsed_output;
  },
  refused: () => refused(() => whole({ messages: user(HELLO), model: UNKNOWN })),
});
