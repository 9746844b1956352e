{
  description = "muxtap: wait for, read and control tmux panes without polling";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin" ];
      cargo = builtins.fromTOML (builtins.readFile ./Cargo.toml);
      build =
        pkgs:
        pkgs.rustPlatform.buildRustPackage {
          pname = "muxtap";
          version = cargo.workspace.package.version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          nativeBuildInputs = [ pkgs.installShellFiles ];
          # The tests need tmux, other programs and a terminal: scripts/test runs them.
          doCheck = false;
          postInstall = ''
            $out/bin/muxtapd __man man
            ln -s muxtap-serve.1 man/muxtapd.1
            installManPage man/*.1
            for shell in bash zsh fish; do $out/bin/muxtapd completions $shell >muxtap.$shell; done
            installShellCompletion --cmd muxtap --bash muxtap.bash --zsh muxtap.zsh --fish muxtap.fish
            for unit in service socket; do
              install -Dm644 packaging/systemd/muxtapd.$unit -t $out/lib/systemd/user
            done
            substituteInPlace $out/lib/systemd/user/muxtapd.service --replace-fail /usr/bin/ $out/bin/
          '';
          meta = {
            description = cargo.package.description;
            homepage = cargo.workspace.package.repository;
            license = pkgs.lib.licenses.mit;
            mainProgram = "muxtap";
          };
        };
    in
    {
      packages = nixpkgs.lib.genAttrs systems (system: rec {
        muxtap = build nixpkgs.legacyPackages.${system};
        default = muxtap;
      });
    };
}
