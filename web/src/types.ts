// The messages of docs/page.md, as they are on the wire.

/**
 * A run of cells: printable ASCII in the default style, or text with its columns, its style and
 * possibly a URL.
 */
export type Run = string | [text: string, columns: number, style: string, url?: string];
/**
 * A row of the screen or a line of history; `"+"` at its end: the line continues in the next row.
 */
export type Row = Run[];

export interface Modes {
    cursor: boolean;
    alternate: boolean;
    mouse: number;
    sgr: boolean;
    keys: boolean;
    keypad: boolean;
    paste: boolean;
    focus: boolean;
    shape: number;
}

export interface AgentOption {
    key?: string;
    label: string;
    selected?: boolean;
}

export interface Agent {
    agent: string;
    name: string;
    state: "permission" | "question" | "working" | "errored" | "idle" | "ended";
    since_ms?: number;
    question?: string;
    question_id?: string;
    options?: AgentOption[];
}

export interface PaneInfo {
    key: string;
    id: string;
    socket: string;
    session: string;
    window: string;
    window_name: string;
    pane: number;
    /** The ids of its session and window in tmux, and its process. */
    session_id?: string;
    window_id?: string;
    pid?: number;
    title: string;
    command: string;
    cwd: string;
    columns: number;
    rows: number;
    active: boolean;
    dead: unknown;
    agent?: Agent | null;
}

/** A command that ran in a pane. */
export interface Ran {
    /** The number of the line at which it was typed, as history counts. */
    at: number;
    number: number;
    line: string | null;
    started_ms: number;
    duration_ms: number | null;
    status: number | null;
    signal: string | null;
    /** Absent while it runs. */
    end: string | null;
}

export interface ScreenMessage {
    type: "screen";
    view: number;
    whole?: boolean;
    same_numbers?: boolean;
    cursor: string;
    columns?: number;
    rows?: number;
    up?: number;
    lines?: Record<string, Row>;
    at: [number, number];
    modes?: Modes;
    title?: string;
    history?: number;
    first?: number;
    commands?: number;
    stale?: boolean;
}

export interface ApiError {
    code: string;
    message: string;
    details?: unknown;
    stage?: string;
}

export interface Wait {
    id: string;
    socket?: string;
    panes: string[];
    mode?: string;
    conditions: { kind: string; pattern?: string }[];
    since_ms: number;
    until_ms: number;
    face?: string;
    who?: string;
}

export interface Approval {
    id: string;
    kind: string;
    name: string;
    asked_by?: string;
    prompt?: string;
    working_dir?: string;
    /** For a `permission`: the agent session that asks. */
    session?: string;
    until?: string;
}

export interface Welcome {
    type: "welcome";
    version: string;
    client: string;
    input: number;
    may: string[];
    fps: number;
    /** The folder of the daemon's own tmux sockets. */
    sockets: string;
}

export interface HistoryMessage {
    type: "history";
    id: number;
    from: number;
    lines: Row[];
    first: number;
    next: number;
    error?: ApiError;
}

export type ServerMessage =
    | Welcome
    | { type: "panes"; whole?: boolean; set: PaneInfo[]; gone: string[] }
    | ScreenMessage
    | { type: "ended"; view: number; exit: { status?: number | null; signal?: number | string | null } | null }
    | HistoryMessage
    | { type: "ack"; seq: number; cursor: string }
    | { type: "nack"; seq: number; error: ApiError }
    | { type: "waits"; waits: Wait[] }
    | { type: "approvals"; approvals: Approval[] }
    | { type: "result"; id: number; result?: unknown; error?: ApiError }
    | { type: "error"; error: ApiError; view?: number; id?: number };

/** The content of an `input` message. */
export type Typed = { keys: string[] } | { text: string } | { paste: string } | { bytes: string };

export const NO_MODES: Modes = {
    cursor: true,
    alternate: false,
    mouse: 0,
    sgr: false,
    keys: false,
    keypad: false,
    paste: false,
    focus: false,
    shape: 0,
};
