"""The stand-in model of tests/agents, which does what the last prompt says: `run COMMAND` is answered by a call of the
agent's tool for commands, `hang …` by nothing, all else by a sentence."""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "agents"))
import model  # noqa: E402

ANSWER = model.SAID


def call(agent, command):
    """A call of the agent's tool for commands."""
    def chosen(tools):
        try:
            return agent.shell(tools, command)
        except StopIteration:
            # codex asks about this one, whether or not it offers it.
            return "shell_command", {"command": command}
    return chosen


class Model(model.Model):
    def __init__(self, agent):
        self.agent = agent
        super().__init__(os.environ.get("MODEL_LOG"))
        self.hanging = threading.Semaphore(0)

    def next_step(self, body):
        last = (body.get("messages") or body.get("input") or body.get("contents") or [{}])[-1]
        is_prompt = last.get("role") == "user" and "tool_result" not in str(last) and "functionResponse" not in str(last)
        # Agents add notes before the prompt, or behind it, and join it with an earlier one that was interrupted.
        said = [text for text in (model.texts(last) if is_prompt else []) if text.startswith(("hang ", "run ", "say "))]
        for text in said[-1:]:
            if text.startswith("hang "):
                self.hanging.release()
                return model.Step("say", ANSWER)
            if text.startswith("run ") and model.tools_of(body):
                return model.Step("tool", call(self.agent, text[4:].strip()), held=False)
        return model.Step("say", ANSWER, held=False)
