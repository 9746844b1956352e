"""The agents that the corpus drives: how each is set up for a model on loopback, and which keys it takes."""
import json
import os


def write(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(value if isinstance(value, str) else json.dumps(value, indent=1))


OPTIONS = [{"label": name, "description": "The color " + name.lower()} for name in ("Red", "Blue")]


class Agent:
    """An agent. `startup` lists what it may ask before its first prompt: a pattern, the state, and the keys to answer.
    `ready` is a pattern of its prompt. `shell` makes a call of its tool for commands, `question` of its tool for
    questions, `edit` of one that writes a file: each a name and arguments, from the tools that the agent offers."""

    package, program = "", ""
    startup, ready = [], ""
    accept, refuse, interrupt = ["Enter"], ["Escape"], ["Escape"]
    # What an agent prints when it asks, after its questions, whether to send the answers.
    submit = r"Submit answers|Review your answers"

    def shell(self, tools, command):
        return None

    def edit(self, tools, path, text):
        return None

    def question(self, tools):
        return None

    def setup(self, home, work, port):
        return {}

    def arguments(self, help_text):
        """The arguments, by what the agent's `--help` prints: versions differ."""
        return []


class Claude(Agent):
    package, program = "@anthropic-ai/claude-code", "claude"
    startup = [
        (r"Choose the text style", "question", ["Enter"]),
        (r"Do you trust the files|trust this folder|Yes, proceed", "permission", ["Enter"]),
        (r"Make auto mode your default", "question", ["Down", "Enter"]),
        (r"Security notes|Press Enter to continue", "idle", ["Enter"]),
    ]
    ready = r"\? for shortcuts|^[ │]*[>❯]\s"

    def setup(self, home, work, port):
        key = "sk-ant-stand-in-0123456789abcdefghij"
        settings = {
            "hasCompletedOnboarding": True, "theme": "dark", "numStartups": 9, "autoUpdates": False,
            "customApiKeyResponses": {"approved": [key[-20:]], "rejected": []},
        }
        write(home + "/.claude.json", settings)
        write(home + "/.claude/settings.json", {"permissions": {"defaultMode": "default"}})
        return {"ANTHROPIC_BASE_URL": "http://127.0.0.1:%d" % port, "ANTHROPIC_API_KEY": key,
                "DISABLE_AUTOUPDATER": "1",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "IS_DEMO": "1"}

    def arguments(self, help_text):
        return ["--permission-mode", "default"] if "--permission-mode" in help_text else []

    def shell(self, tools, command):
        return "Bash", {"command": command, "description": "As asked"}

    def edit(self, tools, path, text):
        return "Write", {"file_path": path, "content": text}

    def question(self, tools):
        return "AskUserQuestion", {"questions": [{
            "question": "Which color do you want?", "header": "Color", "multiSelect": False,
            "options": OPTIONS}]}


class Codex(Agent):
    package, program = "@openai/codex", "codex"
    startup = [
        (r"Do you trust the contents|Trust this folder|You are running Codex in|allow Codex to work in", "permission",
         ["Enter"]),
        (r"Update available", "question", ["Down", "Enter"]),
        (r"Choose how you'd like Codex to proceed", "question", ["Down", "Enter"]),
        (r"Hooks need review|Press enter to continue", "question", ["Enter"]),
    ]
    ready = r"^[ │▌]*[›>▌]"
    accept, refuse = ["y"], ["Escape"]

    def setup(self, home, work, port):
        write(home + "/.codex/config.toml", """
model = "gpt-5-codex"
model_provider = "standin"
approval_policy = "on-request"
sandbox_mode = "read-only"
check_for_update_on_startup = false
[model_providers.standin]
name = "stand-in"
base_url = "http://127.0.0.1:%d/v1"
env_key = "STANDIN_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
""" % port)
        return {"STANDIN_KEY": "x"}

    def arguments(self, help_text):
        return ["--no-daemon"] if "--no-daemon" in help_text else []

    def shell(self, tools, command):
        asked = {"sandbox_permissions": "require_escalated", "with_escalated_permissions": True,
                 "justification": "As asked"}
        calls = {"exec_command": {"cmd": command}, "shell_command": {"command": command},
                 "shell": {"command": ["bash", "-lc", command]}}
        name = next(name for name in calls if name in tools)
        return name, dict(calls[name], **{field: value for field, value in asked.items() if field in tools[name]})


class Gemini(Agent):
    package, program = "@google/gemini-cli", "gemini"
    startup = [
        (r"Do you trust (this folder|the files)", "permission", ["Enter"]),
        (r"How would you like to authenticate", "question", ["Enter"]),
    ]
    ready = r"Type your message"

    def setup(self, home, work, port):
        write(home + "/.gemini/settings.json", {
            "security": {"auth": {"selectedType": "gemini-api-key"}}, "selectedAuthType": "gemini-api-key",
            "general": {"disableAutoUpdate": True, "disableUpdateNag": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False}, "ui": {"hideTips": True},
            "disableAutoUpdate": True, "usageStatisticsEnabled": False,
        })
        return {"GEMINI_API_KEY": "stand-in", "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:%d" % port,
                "GEMINI_MODEL": "gemini-2.5-pro", "GEMINI_TELEMETRY_ENABLED": "false"}

    def shell(self, tools, command):
        return "run_shell_command", {"command": command, "description": "As asked"}

    def edit(self, tools, path, text):
        return "write_file", {"file_path": path, "content": text}

    def question(self, tools):
        return "ask_user", {"questions": [{
            "question": "Which color do you want?", "header": "Color", "type": "choice", "multiSelect": False,
            "options": OPTIONS}]}


class Qwen(Agent):
    package, program = "@qwen-code/qwen-code", "qwen"
    startup = [(r"Do you trust (this folder|the files)", "permission", ["Enter"])]
    ready = r"Type your message"

    def setup(self, home, work, port):
        write(home + "/.qwen/settings.json", {
            "tools": {"approvalMode": "default"},
            "security": {"auth": {"selectedType": "openai"}}, "selectedAuthType": "openai",
            "general": {"disableAutoUpdate": True, "disableUpdateNag": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False}, "ui": {"hideTips": True},
        })
        return {"OPENAI_API_KEY": "stand-in", "OPENAI_BASE_URL": "http://127.0.0.1:%d/v1" % port,
                "OPENAI_MODEL": "stand-in"}

    def arguments(self, help_text):
        return ["--approval-mode", "default"] if "--approval-mode" in help_text else []

    def shell(self, tools, command):
        return "run_shell_command", {"command": command, "description": "As asked", "is_background": False}

    def edit(self, tools, path, text):
        return "write_file", {"file_path": path, "content": text}

    def question(self, tools):
        return "ask_user_question", {"questions": [{
            "question": "Which color do you want?", "header": "Color", "multiSelect": False,
            "options": OPTIONS}]}


class Opencode(Agent):
    package, program = "opencode-ai", "opencode"
    ready = r"Ask anything|ctrl\+p|/help"
    refuse, interrupt = ["Right", "Right", "Enter"], ["Escape", "Escape"]

    def setup(self, home, work, port):
        write(home + "/.config/opencode/opencode.json", {
            "$schema": "https://opencode.ai/config.json", "autoupdate": False, "share": "disabled",
            "model": "anthropic/claude-sonnet-4-5", "permission": {"bash": "ask", "edit": "ask"},
            "provider": {"anthropic": {"options": {"baseURL": "http://127.0.0.1:%d/v1" % port, "apiKey": "x"}}},
        })
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1", "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1"}

    def shell(self, tools, command):
        return "bash", {"command": command, "description": "As asked"}

    def edit(self, tools, path, text):
        return "write", {"filePath": path, "content": text}

    def question(self, tools):
        return "question", {"questions": [{
            "question": "Which color do you want?", "header": "Color", "options": OPTIONS}]}


class Copilot(Agent):
    package, program = "@github/copilot", "copilot"
    startup = [(r"Confirm folder trust|Do you trust", "permission", ["Enter"])]
    ready = r"^ *[│]?\s*[❯>›](\s|$)|^[╻┃]\s*$"
    interrupt = ["Escape", "Escape"]

    def setup(self, home, work, port):
        write(home + "/.copilot/config.json", {"banner": "never", "auto_update": False})
        return {"COPILOT_PROVIDER_BASE_URL": "http://127.0.0.1:%d/v1" % port, "COPILOT_PROVIDER_TYPE": "openai",
                "COPILOT_PROVIDER_API_KEY": "x", "COPILOT_MODEL": "stand-in", "COPILOT_OFFLINE": "true",
                "COPILOT_AUTO_UPDATE": "false"}

    def shell(self, tools, command):
        return "bash", {"command": command, "description": "As asked", "mode": "sync", "initial_wait": 30}

    def edit(self, tools, path, text):
        return "create", {"path": path, "file_text": text}

    def question(self, tools):
        if "requestedSchema" in tools.get("ask_user", {}):
            color = {"type": "string", "title": "Color", "enum": ["Red", "Blue"]}
            schema = {"properties": {"color": color}, "required": ["color"]}
            return "ask_user", {"message": "Which color do you want?", "requestedSchema": schema}
        return "ask_user", {"question": "Which color do you want?", "choices": ["Red", "Blue"]}


AGENTS = {"claude": Claude(), "codex": Codex(), "gemini": Gemini(), "qwen": Qwen(), "opencode": Opencode(),
          "copilot": Copilot()}
