// The ai package over chat completions, Responses and Anthropic's messages: it calls the tool by itself.
import { HELLO, STRUCTURED, TOOL, UNKNOWN, apiKey, dialect, load, model, refused, report, url, weather } from "./steps.mjs";

const { Output, generateText, stepCountIs, streamText, tool } = await load("ai");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { createOpenAI } = await load("@ai-sdk/openai");
const { z } = await load("zod");
const baseURL = `${url}/v1`;
const City = z.object({ name: z.string(), people: z.int() });
const tools = {
  weather: tool({ description: "Tell the weather.", inputSchema: z.object({ city: z.string() }), execute: weather }),
};

const connected = dialect === "messages" ? createAnthropic({ baseURL, apiKey }) : createOpenAI({ baseURL, apiKey })[dialect];
const always = { providerOptions: { openai: { store: false } }, stopWhen: stepCountIs(5) };
const whole = (prompt, options) => generateText({ model: connected(model), prompt, ...always, ...options });

async function gathered(prompt, options) {
  const errors = [];
  const onError = ({ error }) => errors.push(error);
  const stream = streamText({ model: connected(model), prompt, onError, ...always, ...options });
  const pieces = [];
  for await (const piece of stream.textStream) pieces.push(piece);
  if (errors.length) throw errors[0];
  return { text: pieces.join(""), totalUsage: await stream.totalUsage, steps: await stream.steps };
}

const said = ({ text, totalUsage }) => ({ text, tokens: [totalUsage.inputTokens, totalUsage.outputTokens], cost: totalUsage.raw?.cost });
const roundTrip = ({ text, steps }) => ({
  calls: steps.flatMap(({ toolCalls }) => toolCalls).map(({ toolName, input }) => [toolName, input]),
  text,
});

await report({
  plain: async () => said(await whole(HELLO)),
  streamed: async () => said(await gathered(HELLO)),
  tool: async () => roundTrip(await whole(TOOL, { tools })),
  streamed_tool: async () => roundTrip(await gathered(TOOL, { tools })),
  structured: async () => (await whole(STRUCTURED, { output: Output.object({ schema: City }) })).output,
  refused: () => refused(() => whole(HELLO, { model: connected(UNKNOWN) })),
});
