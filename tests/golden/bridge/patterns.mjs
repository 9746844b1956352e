// Writes patterns.tsv: what V8 says of patterns (`new RegExp(source, "m")`) and of texts (`.test(text)`).
// node patterns.mjs > patterns.tsv
const sources = [
  // What scripts wait for.
  "DONE", "^DONE$", "PASS|FAIL", "\\$ $", "[#$%] ?$", "exit code: (\\d+)", "error(s)?:", "(?:ok|failed)\\b", "\\bready\\b", ">>> ",
  "^\\s*$", "100%", "\\d{4}-\\d\\d-\\d\\d", "a.c", "a[^]c", "^b", "c$", "^$", "x*", "x+?y", "(a|b)*c", "(?<n>a)b", "\\/tmp\\/",
  // Annex B.
  "\\_", "\\-", "\\]", "]", "}", "{", "a{", "a{}", "a{,2}", "a{1", "a{1,", "{1}", "a{1}{2}", "x{a}", "\\z", "\\e", "\\c", "\\cA", "\\ca", "\\c1",
  "[\\c1]", "[\\c]", "\\0", "\\00", "\\01", "\\07", "\\8", "\\9", "\\1", "\\377", "\\400", "\\x", "\\x4", "\\x41", "\\u", "\\u004", "\\u0041",
  "\\u{41}", "\\u{1}", "\\p{L}", "\\P{L}", "\\k", "\\k<a>", "(?<a>.)\\k<a>", "\\k<a>(?<a>x)", "(?<a>x)\\k", "(?<a>x)\\k<b>", "[\\b]", "\\ba",
  "\\b*", "\\B+", "\\b?", "\\b{1}", "(?=a)*", "(?=a){2}b", "(?!a)?", "(?<=a)*", "(?<!a)+", "[a-z]", "[z-a]", "[\\d-z]", "[a-\\d]", "[--a]", "[a-]",
  "[]", "[^]", "[^^]", "[[]", "[\\]]", "[a-b-c]", "[\\w-]", "[\\s\\S]", "[^\\s\\S]",
  // Refused.
  "(", ")", "(a", "a)", "*", "+a", "?", "a**", "a++", "a???", "[", "[a", "\\", "(?i)a", "(?)", "(?a)", "(?P<n>a)", "(?<n>a)(?<n>b)",
  "(?<1>a)", "(?<>a)", "(?#c)", "(?>a)", "a{2,1}", "^*", "$+", "(?<n", "a|*",
  // Lookaround, references.
  "(?=.*b)a", "a(?!b)", "(?<=a)b", "(?<!a)b", "(?<=^|\\n)x", "(?<=(\\d+))x", "(a)\\1", "(a)(b)\\2\\1", "(?:(a)|b)\\1", "\\1(a)", "(a\\1)",
  "(?=(a+))a*b\\1", "(?<=\\1(a))b", "(a*)*", "(a*)+b", "(?:a?){3}", "(?=a)a(?=b)b", "(?<first>.)(?<second>.)\\k<second>\\k<first>",
  // Beyond ASCII.
  "é", "\\xe9", "\\u00e9", "^.$", "^..$", "[😀]", "😀", "\\ud83d", "\\ude00", "\\ud83d\\ude00", "[\\ud83d\\ude00]", "^[^a]{2}$", "\\w", "\\W", "\\s", "\\S",
  "^\\s+$", "\\d", "\\D", "\\bé", "é\\b", "\u2028", "a$", "^a", "(?<é>a)", "(?<\\u{61}>a)", "(?<\\u0061>a)\\k<a>", "\\ud800", "[^\\ud800]",
  "^\\u{2}$", "[\\u{41}]+",
];
const texts = [
  "", "DONE", "not DONE yet", "$ ", "x\n$ ", "# make\nerror: 1\nexit code: 2\nok", "PASSED", "already ready", "100% 2026-11-21",
  "abc", "a\nc", "a\nb\nc", "aab", "aa", "ab", "abab", "b", "abba", "xxy", "a{,2}", "{1}", "]}", "\\", "_-z e", "\u0001\b\u0000", "A", "4", "u{41}", "uu",
  "k<a>xx", "p{L}", "{", "é", "😀", "a😀b", "\ud83d", "\ude00\ud83d", "a\u2028b", "\u00a0\ufeff\u3000", "\u200b", "a\r\nb", "/tmp/x 1x", "^-",
];
const json = JSON.stringify;
const quote = text => json(text).replace(/[\u007f-\uffff]/g, unit => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0"));
console.log(`texts\t${texts.map(quote).join("\t")}`);
for (const source of sources) {
  let verdicts = "invalid";
  try {
    const regex = new RegExp(source, "m");
    verdicts = texts.map(text => (regex.test(text) ? "1" : "0")).join("");
  } catch {}
  console.log(`${quote(source)}\t${verdicts}`);
}
