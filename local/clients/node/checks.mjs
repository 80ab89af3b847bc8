// One client after the other: modules that are imported side by side would run so, and share what the provider answers.
await import('./openai.mjs');
await import('./bedrock.mjs');
await import('./langchain.mjs');
process.exit(0); // whatever connections the clients keep
