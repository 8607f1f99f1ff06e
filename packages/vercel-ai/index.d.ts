import type { LanguageModelMiddleware } from "ai";

export interface GuardOptions {
  /** Address of the service; http://127.0.0.1:8787 by default. */
  baseURL?: string;
  /** Key of the service, where it needs one. */
  apiKey?: string;
  /** Names the conversation from a call's parameters; without it the messages tell it. */
  sessionId?: (params: { providerOptions?: Record<string, unknown> }) => string | undefined;
  /** What happens when the guard does not answer: refuse (the default), go on, or throw. */
  onUnavailable?: "block" | "allow" | "raise";
  /** Longest wait for the guard. */
  timeoutMs?: number;
  /** Used in place of the global fetch. */
  fetch?: typeof fetch;
}

export declare const STRIPPED: string;
export declare class GuardUnavailable extends Error {}
export declare function promptguard(options?: GuardOptions): LanguageModelMiddleware;
