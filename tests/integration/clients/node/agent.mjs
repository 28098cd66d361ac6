// An agent for Node: does what it is told by its argument, and prints what it saw as JSON.
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const model = "policy";
const question = "What is 37 + 58?";
const messages = [{ role: "user", content: question }];
const parameters = { type: "object", properties: { expression: { type: "string" } } };
const calculator = { name: "calculator", description: "Calculates.", parameters };
const tools = [{ type: "function", function: calculator }];
const flatTools = [{ type: "function", ...calculator, strict: false }];
const include_usage = { stream: true, stream_options: { include_usage: true } };

async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

const actions = {
  chat: () => client.chat.completions.create({ model, messages, max_tokens: 6 }),
  chat_stream: async () => all(await client.chat.completions.create({ model, messages, max_tokens: 6, ...include_usage })),
  tools: () => client.chat.completions.create({ model, messages, tools }),
  tools_stream: () =>
    client.chat.completions.stream({ model, messages, tools, ...include_usage }).finalChatCompletion(),
  completions: () => client.completions.create({ model, prompt: question, max_tokens: 6 }),
  responses: () => client.responses.create({ model, input: question, tools: flatTools }),
  responses_stream: () => client.responses.stream({ model, input: question, tools: flatTools }).finalResponse(),
  json_schema: async () => {
    const schema = { type: "object", properties: { answer: { type: "integer" } } };
    const response_format = { type: "json_schema", json_schema: { name: "sum", schema } };
    return client.chat.completions.parse({ model, messages, response_format });
  },
  errors: async () => {
    const asked = [
      client.chat.completions.create({ model: "nobody", messages }),
      client.responses.create({ model, input: "x", previous_response_id: "r" }),
      client.completions.create({ model, prompt: ["a", "b"] }),
    ];
    const settled = await Promise.allSettled(asked);
    return settled.map(({ reason }) => ({ status: reason.status, message: reason.message }));
  },
};

console.log(JSON.stringify(await actions[process.argv[2]]()));
