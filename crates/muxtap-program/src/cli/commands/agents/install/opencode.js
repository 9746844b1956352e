// muxtap's plugin: written by `muxtap agents install`, removed by `muxtap agents uninstall`.
import { spawn } from "node:child_process"

const states = { busy: "working", retry: "working", idle: "idle" }

// Reports are sent one after the other: the daemon keeps their order.
let queue = Promise.resolve()

// The sessions of sub-agents: their ends are not the agent's.
const children = new Set()

const report = (state, session) => {
  if (!process.env.TMUX_PANE) return
  const words = ["report-agent", "--quiet", "--source", "opencode", "--state", state]
  if (session) words.push("--session", session)
  // opencode neither waits for it nor fails with it.
  queue = queue.then(() => new Promise((done) => {
    spawn(MUXTAP, words, { stdio: "ignore" }).on("error", done).on("close", done)
  }))
}

export const Muxtap = async () => ({
  event: async ({ event }) => {
    const of = event.properties ?? {}
    if (/^session\.(created|updated)$/.test(event.type) && of.info?.parentID) children.add(of.info.id)
    else if (event.type === "session.deleted") children.delete(of.info?.id)
    else if (/^session\./.test(event.type) && children.has(of.sessionID)) return
    else if (event.type === "session.status" && states[of.status?.type]) report(states[of.status.type], of.sessionID)
    else if (event.type === "session.idle") report("idle", of.sessionID)
    else if (event.type === "permission.asked" || event.type === "permission.updated") report("permission", of.sessionID)
    else if (event.type === "question.asked") report("question", of.sessionID)
    else if (/^(permission|question)\.(replied|rejected)$/.test(event.type)) report("working", of.sessionID)
    else if (event.type === "session.error") report("errored", of.sessionID)
  },
})
