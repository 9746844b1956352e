"""The stand-in model of tests/agents, which does what the last prompt says: `run COMMAND` is answered by a call of the
agent's tool for commands, `hang …` by nothing, all else by a sentence."""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "agents"))
import model  # noqa: E402

ANSWER = model.SAID


def call(command):
    """A call of the agent's tool for commands."""
    claude = ("Bash", {"command": command, "description": "as asked"})
    # codex asks about this one, whether or not it offers it.
    codex = ("shell_command", {"command": command})
    return lambda tools: claude if "Bash" in tools else codex


class Model(model.Model):
    def __init__(self):
        super().__init__(os.environ.get("MODEL_LOG"))
        self.hanging = threading.Semaphore(0)

    def next_step(self, body):
        last = (body.get("messages") or body.get("input") or [{}])[-1]
        is_prompt = last.get("role") == "user" and "tool_result" not in str(last)
        # What agents add stands before the prompt.
        said = (model.texts(last) if is_prompt else [])[-1:]
        for text in said:
            if text.startswith("hang "):
                self.hanging.release()
                return model.Step("say", ANSWER)
            if text.startswith("run ") and model.tools_of(body):
                return model.Step("tool", call(text[4:].strip()), held=False)
        return model.Step("say", ANSWER, held=False)
