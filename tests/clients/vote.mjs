// Votes on questions through a client of one vendor; this file was never told about feval.
//
//     node vote.mjs CLIENT URL MODEL N whole|streamed [OPTIONS] < QUESTIONS.json
//
// NODE_PATH does not serve modules: CLIENTS names the folder whose node_modules has them.
// Prints JSON: the texts of N replies per question, and all output tokens that the client saw.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
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

  // samples by itself: FLAGS are those of its command
  async promptfoo(url, model, _, flags = ["--no-cache"]) {
    return (questions, number) => {
      const folder = mkdtempSync(join(tmpdir(), "promptfoo-"));
      const [config, out] = [join(folder, "config.json"), join(folder, "out.json")];
      writeFileSync(config, JSON.stringify({
        prompts: ["{{question}}"],
        providers: [
          { id: `openai:chat:${model}`, config: { apiBaseUrl: `${url}/v1`, apiKey: "votes" } },
        ],
        tests: questions.map((question) => ({ vars: { question } })),
      }));
      const asked = ["eval", "-c", config, "-o", out, "--repeat", number, "-j", "1", "--no-write", ...flags];
      execFileSync(`${process.env.CLIENTS}/node_modules/.bin/promptfoo`, asked, { stdio: "ignore" });
      const { results } = JSON.parse(readFileSync(out, "utf8")).results;
      rmSync(folder, { recursive: true });
      const said = (question) => results.filter((own) => own.vars.question === question);
      const texts = questions.map((question) => said(question).map((own) => own.response.output));
      const tokens = results.map((own) => own.response.tokenUsage.completion);
      return { texts, tokens: tokens.reduce((sum, own) => sum + own) };
    };
  },
};

// Asks N times for each question.
const repeated = (ask) => async (questions, number) => {
  const texts = [];
  let tokens = 0;
  for (const question of questions) {
    const said = [];
    for (let sample = 0; sample < Number(number); sample += 1) {
      const [text, count] = await ask(question);
      said.push(text);
      tokens += count;
    }
    texts.push(said);
  }
  return { texts, tokens };
};

const [name, url, model, number, mode, options] = process.argv.slice(2);
const client = await clients[name](url, model, mode === "streamed", options && JSON.parse(options));
const sample = name === "promptfoo" ? client : repeated(client);
const found = await sample(JSON.parse(readFileSync(0, "utf8")), number);
process.stdout.write(JSON.stringify(found));
