// Addresses of conversations. One is named channel:sender/topic; the server builds the same name
// from a message.

import { readStored, store } from "../keep.js";
import { randomId } from "./model.js";

export const CHANNEL = "web";

export function addressOf(conversation, boundSender) {
  const [sender, ...topic] = conversation.slice(CHANNEL.length + 1).split("/");
  const who = boundSender ? { sender: boundSender } : { sender: "web", senderId: sender };
  return { channel: CHANNEL, ...who, ...(topic.length ? { conversation: topic.join("/") } : {}) };
}

export function newConversation(boundSender) {
  const senderId = readStored("sender") ?? `web-${randomId(9)}`;
  store("sender", senderId);
  return `${CHANNEL}:${boundSender ?? senderId}/${randomId(12)}`;
}

export function conversationInBar() {
  return new URLSearchParams(location.search).get("c");
}

export function pageOf(conversation) {
  return `/?c=${encodeURIComponent(conversation)}`;
}
