# Fetches the sources of a release and builds them: one file for Linux and macOS, on every processor.
class Muxtap < Formula
  desc "Wait for, read and control tmux panes without polling"
  homepage "https://github.com/muxtap/muxtap"
  url "https://github.com/muxtap/muxtap/releases/download/v@VERSION@/muxtap-@VERSION@-src.tar.gz"
  sha256 "@SOURCE_SHA256@"
  license "MIT"
  head "https://github.com/muxtap/muxtap.git", branch: "main"

  depends_on "rust" => :build
  depends_on "tmux"

  def install
    system "cargo", "install", *std_cargo_args
    generate_completions_from_executable(bin/"muxtapd", "completions", base_name: "muxtap")
    system bin/"muxtapd", "__man", buildpath/"man"
    man1.install Dir["man/*.1"]
    man1.install_symlink "muxtap-serve.1" => "muxtapd.1"
  end

  # launchd's PATH has neither tmux nor ssh's helpers of Homebrew. On Linux the units of systemd are complete:
  # packaging/systemd.
  on_macos do
    service do
      run [opt_bin/"muxtapd", "serve"]
      keep_alive successful_exit: false
      environment_variables PATH: std_service_path_env
    end
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/muxtap --version")
    ENV["MUXTAP_SOCKET"] = testpath/"m.sock"
    socket = testpath/"t.sock"
    system bin/"muxtap", "-S", socket, "new-session", "-s", "hello", "echo ready to go; exec sh"
    assert_match "ready to go", shell_output("#{bin}/muxtap -S #{socket} wait-for -t hello -p ready -T 20")
    system bin/"muxtap", "stop"
    system "tmux", "-S", socket, "kill-server"
  end
end
