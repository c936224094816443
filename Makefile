# `make run` and `make test` are all that a fresh machine with a Rust toolchain needs.

CARGO ?= cargo
# Warnings are errors here, and only here: a newer compiler's new warning must not stop a user's build.
STRICT = -D warnings

.PHONY: run build install test tools fmt-check lint doc unit bench chaos docs deny msrv clean

run:
	$(CARGO) run --release -- serve --config config/limit.yaml

# Into target/release: weir, and loadtest.
build:
	$(CARGO) build --release --locked --workspace --bins

# The binary, its manual pages, and completions for bash, zsh and fish.
PREFIX ?= /usr/local
install: build
	install -D -m 0755 target/release/weir $(DESTDIR)$(PREFIX)/bin/weir
	target/release/weir man --out $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	target/release/weir completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/weir
	target/release/weir completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_weir
	target/release/weir completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/weir.fish

test: tools fmt-check lint doc unit

# What the tests start for real. Installed by the system's package manager, or named.
tools:
	@sh deploy/install-test-tools.sh
	@sh deploy/test-venv.sh >/dev/null

fmt-check:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets --locked -- $(STRICT)
	$(CARGO) clippy -p weir --lib --bins --test otlp --features otlp --locked -- $(STRICT)

doc:
	RUSTDOCFLAGS="$(STRICT)" $(CARGO) doc --workspace --no-deps --locked

unit:
	$(CARGO) test --workspace --locked
	$(CARGO) test -p weir --test otlp --features otlp --locked

# All of the chaos, at length, with its figures: outages of a minute each. (`make test` runs a moment of each.)
chaos: tools
	WEIR_CHAOS_SECONDS=$${WEIR_CHAOS_SECONDS:-60} $(CARGO) test --locked --test chaos --test deployments -- --nocapture --test-threads=1

bench:
	$(CARGO) run --release --locked -p loadtest -- bench

# What stands in the documents and is made by the programs themselves. A test says when it is behind.
docs:
	$(CARGO) build --locked --workspace --bins
	target/debug/loadtest plot --out docs/plots
	target/debug/weir reference | sed -i -e '/<!-- made by weir reference -->/,/<!-- end -->/{//!d}' -e '/<!-- made by weir reference -->/r /dev/stdin' docs/configuration.md

# Licences, bans, sources (no network needed once the crates are there: cargo fetch) and advisories (the database comes from GitHub).
DENY ?= advisories licenses bans sources
deny:
	$(CARGO) deny --locked check $(DENY)

# The oldest compiler that Cargo.toml promises. It must be installed: rustup toolchain install.
msrv:
	$(CARGO) +$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1) check --workspace --all-targets --locked --target-dir target/msrv

clean:
	$(CARGO) clean
