// Self-consistency in JavaScript with the npm package `openai`, against `feval serve`, graded by the server:
//
//     npm install openai
//     OPENAI_BASE_URL=http://127.0.0.1:8000/run/javascript/v1 OPENAI_API_KEY=none node self_consistency.mjs [QUESTIONS.jsonl]
//
// The path names the run: its draws, its cursor, its ledger. The program knows question texts, and no gold answers.

import { readFileSync } from "node:fs";

if (process.argv.includes("--help")) {
  console.log("usage: node self_consistency.mjs [QUESTIONS.jsonl]");
  process.exit();
}
const { default: OpenAI } = await import("openai");

const model = process.env.MODEL ?? "feval/tiny-42k";
const votes = Number(process.env.VOTES ?? 20);
const file = process.argv[2] ?? new URL("questions.jsonl", import.meta.url);
const questions = readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line).question);

const client = new OpenAI();

async function selfConsistency(question) {
  const reply = await client.chat.completions.create({
    model,
    messages: [{ role: "user", content: question }],
    n: votes,
    temperature: 1,
  });
  const counts = new Map();
  for (const choice of reply.choices) {
    const found = choice.message.content.match(/answer is\s+(-?\d+)/);
    if (found) counts.set(found[1], (counts.get(found[1]) ?? 0) + 1);
  }
  const [best] = [...counts].sort((one, other) => other[1] - one[1]); // a stable sort: the first seen on a tie
  return best ? best[0] : null;
}

const answers = [];
for (const question of questions) answers.push({ question, answer: await selfConsistency(question) });

const graded = await client.post(new URL("../feval/grade", `${client.baseURL}/`).href, { body: { answers } });
const { correct, questions: asked, accuracy, accuracy_low, accuracy_high, usd } = graded.grade;
console.log(`${correct} of ${asked} right with ${votes} votes of ${model}`);
console.log(`accuracy ${accuracy.toFixed(3)} (${accuracy_low.toFixed(3)} to ${accuracy_high.toFixed(3)}), ${usd} USD`);
