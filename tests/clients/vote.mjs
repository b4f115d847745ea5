// Votes on questions through a client of one vendor; this file was never told about feval.
//
//     node vote.mjs CLIENT URL MODEL N whole|streamed < QUESTIONS.json
//
// NODE_PATH does not serve modules: CLIENTS names the folder whose node_modules has them.
// Prints JSON: the texts of N replies per question, and all output tokens that the client saw.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const from = createRequire(`${process.env.CLIENTS}/package.json`);
const load = (name) => import(pathToFileURL(from.resolve(name)).href);

const clients = {
  async openai(url, model, stream) {
    const OpenAI = (await load("openai")).default;
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "votes" });
    return async (text) => {
      const asked = { model, messages: [{ role: "user", content: text }] };
      if (!stream) {
        const reply = await client.chat.completions.create(asked);
        return [reply.choices[0].message.content, reply.usage.completion_tokens];
      }
      let said = "", tokens = 0;
      const options = { ...asked, stream: true, stream_options: { include_usage: true } };
      for await (const part of await client.chat.completions.create(options)) {
        said += part.choices[0]?.delta?.content ?? "";
        tokens = part.usage?.completion_tokens ?? tokens;
      }
      return [said, tokens];
    };
  },

  async vercel(url, model, stream) {
    const { generateText, streamText } = await load("ai");
    const { createOpenAI } = await load("@ai-sdk/openai");
    const llm = createOpenAI({ baseURL: `${url}/v1`, apiKey: "votes" })(model);
    return async (text) => {
      if (!stream) {
        const reply = await generateText({ model: llm, prompt: text, maxRetries: 0 });
        return [reply.text, reply.usage.outputTokens];
      }
      const reply = streamText({ model: llm, prompt: text, maxRetries: 0 });
      let said = "";
      for await (const part of reply.textStream) said += part;
      return [said, (await reply.usage).outputTokens];
    };
  },

  async anthropic(url, model, stream) {
    const Anthropic = (await load("@anthropic-ai/sdk")).default;
    const client = new Anthropic({ baseURL: url, apiKey: "votes" });
    return async (text) => {
      const asked = { model, max_tokens: 120, messages: [{ role: "user", content: text }] };
      const reply = stream
        ? await client.messages.stream(asked).finalMessage()
        : await client.messages.create(asked);
      return [reply.content.at(-1).text, reply.usage.output_tokens];
    };
  },

  async gemini(url, model, stream) {
    const { GoogleGenAI } = await load("@google/genai");
    const client = new GoogleGenAI({ apiKey: "votes", httpOptions: { baseUrl: url } });
    return async (text) => {
      const asked = { model, contents: text };
      if (!stream) {
        const reply = await client.models.generateContent(asked);
        return [reply.text, reply.usageMetadata.candidatesTokenCount];
      }
      let said = "", tokens = 0;
      for await (const part of await client.models.generateContentStream(asked)) {
        said += part.text ?? "";
        tokens = part.usageMetadata?.candidatesTokenCount ?? tokens;
      }
      return [said, tokens];
    };
  },

  async ollama(url, model, stream) {
    const { Ollama } = await load("ollama");
    const client = new Ollama({ host: url, headers: { Authorization: "Bearer votes" } });
    return async (text) => {
      const asked = { model, messages: [{ role: "user", content: text }] };
      if (!stream) {
        const reply = await client.chat(asked);
        return [reply.message.content, reply.eval_count];
      }
      let said = "", tokens = 0;
      for await (const part of await client.chat({ ...asked, stream: true })) {
        said += part.message.content;
        tokens = part.eval_count ?? tokens;
      }
      return [said, tokens];
    };
  },
};

const [name, url, model, number, mode] = process.argv.slice(2);
const ask = await clients[name](url, model, mode === "streamed");
const texts = [];
let tokens = 0;
for (const question of JSON.parse(readFileSync(0, "utf8"))) {
  const said = [];
  for (let sample = 0; sample < Number(number); sample += 1) {
    const [text, count] = await ask(question);
    said.push(text);
    tokens += count;
  }
  texts.push(said);
}
process.stdout.write(JSON.stringify({ texts, tokens }));
