import './openai.mjs';
import './bedrock.mjs';
process.exit(0); // whatever connection a client keeps
