# `make run` and `make test` are all that a fresh machine with a Rust toolchain needs.

CARGO ?= cargo
# Warnings are errors here, and only here: a newer compiler's new warning must not stop a user's build.
STRICT = -D warnings

.PHONY: run test tools fmt-check lint doc unit bench chaos clean

run:
	$(CARGO) run --release -- serve --config config/limit.yaml

test: tools fmt-check lint doc unit

# What the tests start for real. Installed by the system's package manager, or named.
tools:
	@sh deploy/install-test-tools.sh
	@sh deploy/test-venv.sh >/dev/null

fmt-check:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets --locked -- $(STRICT)

doc:
	RUSTDOCFLAGS="$(STRICT)" $(CARGO) doc --workspace --no-deps --locked

unit:
	$(CARGO) test --workspace --locked

bench:
	$(CARGO) run --release --locked -p loadtest -- bench

clean:
	$(CARGO) clean
