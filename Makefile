# Sluice: `make help` lists the targets.  BUILD=DIR chooses the output directory; SAN=address|thread the
# build's flavour (each with a directory of its own); WERROR=0 lets warnings pass; V=1 shows the commands.

SAN ?=
BUILD ?= build$(if $(SAN),-$(SAN))
CC ?= gcc
WERROR ?= 1
OPT ?= -O2
VERSION := $(shell sed -n 's/^VERSION=//p' conf/version)
V ?= 0
Q := $(if $(filter 0,$(V)),@)
PREFIX ?= /usr/local
DESTDIR ?=

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wno-unused-parameter \
	$(if $(filter 1,$(WERROR)),-Werror)
CFLAGS ?= $(OPT) -g -fno-omit-frame-pointer
override CPPFLAGS += -D_GNU_SOURCE -Iinclude -Isrc -DSLUICE_VERSION='"$(VERSION)"'
override CFLAGS += -std=gnu17 $(WARN) -pthread
ifeq ($(SAN),address)
override CFLAGS += -fsanitize=address,undefined -fno-sanitize-recover=undefined -O1
override LDFLAGS += -fsanitize=address,undefined
endif
ifeq ($(SAN),thread)
override CFLAGS += -fsanitize=thread -O1
override LDFLAGS += -fsanitize=thread
endif
override LDFLAGS += -pthread

LAYERS := base store store/local volume rpc nfs nfs/v4 nfs/state admin
SERVER_LIBS := -luring -llmdb -luv -ltirpc -lurcu -lurcu-common -lisal -lsodium -ljansson -linih -lmicrohttpd
override CPPFLAGS += -I/usr/include/tirpc

objects = $(patsubst %,$(BUILD)/obj/%.o,$(wildcard $(foreach d,$(1),src/$(d)/*.c src/$(d)/*.S)))
LIB_OBJECTS := $(filter-out %/sluiced.c.o,$(call objects,$(LAYERS)))
SERVER_OBJECTS := $(call objects,$(LAYERS))
CLI_OBJECTS := $(call objects,cli base)
UNIT_TESTS := $(wildcard tests/unit/*/test_*.c)
UNIT_PROGRAMS := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(UNIT_TESTS))

all: $(BUILD)/sluiced $(BUILD)/sluice ## build the server and the command line

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile tests/tests.mk bench/bench.mk | expand -t 25
	@echo "BUILD=DIR, SAN=address|thread, WERROR=0, V=1, PREFIX=DIR, DESTDIR=DIR: see the head of the Makefile"

$(BUILD)/sluiced: $(SERVER_OBJECTS)
	$(Q)echo "  LD $@"; $(CC) $(LDFLAGS) -o $@ $^ $(SERVER_LIBS)

$(BUILD)/sluice: $(CLI_OBJECTS)
	$(Q)echo "  LD $@"; $(CC) $(LDFLAGS) -o $@ $^ $(SERVER_LIBS)

$(BUILD)/libsluice.a: $(LIB_OBJECTS)
	@rm -f $@
	$(Q)ar rcs $@ $^

$(BUILD)/obj/%.o: %
	@mkdir -p $(@D)
	$(Q)echo "  CC $<"; $(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/tests/unit/%: tests/unit/%.c $(BUILD)/libsluice.a
	@mkdir -p $(@D)
	$(Q)echo "  CC $<"; $(CC) $(CPPFLAGS) -Itests $(CFLAGS) -MMD -MP -MF $@.d $(LDFLAGS) -o $@ $< $(BUILD)/libsluice.a $(SERVER_LIBS) -lcmocka

include tests/tests.mk bench/bench.mk

deps: ## install what is missing from Debian's packages (without root: print the command)
	@conf/deps

install: all ## install under PREFIX (default /usr/local)
	install -d $(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/doc/sluice \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/man/man8
	install -m755 $(BUILD)/sluiced $(DESTDIR)$(PREFIX)/sbin/
	install -m755 $(BUILD)/sluice $(DESTDIR)$(PREFIX)/bin/
	install -m644 README.md docs/*.md conf/sluice.conf conf/grafana-dashboard.json $(DESTDIR)$(PREFIX)/share/doc/sluice/
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's|@sbindir@|$(PREFIX)/sbin|' conf/sluice.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/sluice.service
	[ -e $(DESTDIR)/etc/sluice.conf ] || { install -d $(DESTDIR)/etc && \
		sed 's|^#pool =.*|pool = /var/lib/sluice/pool|; s|^#socket =.*|socket = /run/sluice/control.sock|' conf/sluice.conf \
		>$(DESTDIR)/etc/sluice.conf; }
	mkdir -p $(BUILD)/man
	cp docs/*.[58] $(BUILD)/man/
	-@SLUICE_BUILD=$(BUILD) docs/make-man --into $(BUILD)/man # as this build's help says; without python3 as they are
	install -m644 $(BUILD)/man/*.8 $(DESTDIR)$(PREFIX)/share/man/man8/
	install -d $(DESTDIR)$(PREFIX)/share/man/man5
	install -m644 $(BUILD)/man/*.5 $(DESTDIR)$(PREFIX)/share/man/man5/
	install -m644 conf/sluice.bash-completion $(DESTDIR)$(PREFIX)/share/bash-completion/completions/sluice

quickstart: ## build, start a server, import DATA=DIR, read it back over NFS, survive kill -9
	@conf/deps build
	@$(MAKE) -s --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$$(nproc)) all $(BUILD)/tests/nfstree
	@BUILD=$(BUILD) DATA='$(DATA)' tests/quickstart

clean: ## remove all builds
	rm -rf build build-address build-thread build-fuzz

.PHONY: all help deps install quickstart clean
-include $(patsubst %.o,%.d,$(SERVER_OBJECTS) $(CLI_OBJECTS)) $(UNIT_PROGRAMS:%=%.d)
