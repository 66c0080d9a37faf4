// The TypeScript SDK as a client, on stdio and over HTTP: start, follow, cancel a
// request in flight, and be woken. sdk.mjs PROGRAM MEMBER URL TOKEN FOLDER
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResourceUpdatedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [program, member, url, token, folder] = process.argv.slice(2);
const inbox = `space://inbox/${member}`;

async function check(name, transport) {
  const client = new Client({ name: "test-clients", version: "1" });
  const waiting = new Map(); // by URI: who waits for news
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => waiting.get(params.uri)?.());
  const updated = (uri) => new Promise((resolve) => waiting.set(uri, resolve));
  const tool = (args, options) => client.callTool({ name: "space_job", arguments: args }, undefined, options);

  await client.connect(transport);
  const { tools } = await client.listTools(); // from now on the client holds results to the output schemas
  assert.deepEqual(tools.map((t) => t.name).sort(), ["space_job", "space_thread"]);
  assert.match(client.getInstructions(), /job/);

  const gate = `${folder}/gate-${name}`;
  execFileSync("mkfifo", [gate]);
  const started = await tool({ action: "start", argv: ["sh", "-c", 'echo one; cat "$0"; exit 4', gate], notify: true });
  assert.equal(started.isError, undefined, JSON.stringify(started));
  const { job } = started.structuredContent;

  let offset = 0;
  for (let text = ""; !text.includes("one"); ) {
    const read = await tool({ action: "logs", job, offset, follow_ms: 25000 });
    text += read.structuredContent.text;
    offset = read.structuredContent.next_offset;
  }

  const stop = new AbortController(); // at the first word that the wait goes on
  const began = Date.now();
  await assert.rejects(
    tool({ action: "logs", job, offset, follow_ms: 25000 }, { signal: stop.signal, onprogress: () => stop.abort("enough") }),
    /enough/,
  );
  const status = await tool({ action: "status", job });
  assert.equal(status.structuredContent.state, "running");
  assert.ok(Date.now() - began < 20000, "a cancelled request held up the next one");

  const wrong = await tool({ action: "logs", job, follow_ms: 25001 });
  assert.ok(wrong.isError);
  assert.match(wrong.structuredContent.error.message, /^follow_ms: /);
  await assert.rejects(client.subscribeResource({ uri: "space://inbox/somebody-else" }));

  await client.subscribeResource({ uri: inbox });
  await client.subscribeResource({ uri: `space://job/${job}` });
  const woken = Promise.all([updated(inbox), updated(`space://job/${job}`)]);
  await writeFile(gate, "two\n"); // nothing is asked any more: the job ends by itself
  await woken;

  const { contents } = await client.readResource({ uri: `space://job/${job}` });
  const end = JSON.parse(contents[0].text);
  assert.equal(end.state, "exited");
  assert.equal(end.exit_code, 4);
  const items = await client.callTool({ name: "space_thread", arguments: { action: "inbox" } });
  assert.match(JSON.stringify(items.structuredContent.items), new RegExp(job));
  await client.unsubscribeResource({ uri: inbox });
  await transport.terminateSession?.();
  await client.close();
  console.log(`ok: TypeScript SDK, ${name}`);
}

const late = setTimeout(() => {
  console.error("the TypeScript SDK waited for 60 seconds");
  process.exit(1);
}, 60_000);
// One after the other: they are one member, and the news of its inbox come to both.
await check("stdio", new StdioClientTransport({ command: program, args: ["mcp", "--member", member], env: { ...process.env } }));
await check("http", new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } }));
clearTimeout(late);
