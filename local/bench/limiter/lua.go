package main

import (
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/llm-queue/llmq/pkg/llmq/capacity"
)

// program is the law's text, compiled. It is immutable.
type program struct{ proto *lua.FunctionProto }

func compile(text string) (program, error) {
	chunk, err := parse.Parse(strings.NewReader(text+"\nreturn law\n"), "law.lua")
	if err != nil {
		return program{}, fmt.Errorf("parse the law: %w", err)
	}
	proto, err := lua.Compile(chunk, "law.lua")
	if err != nil {
		return program{}, fmt.Errorf("compile the law: %w", err)
	}
	return program{proto}, nil
}

// learned is the product's law: the very Lua that its scripts are made of, with the book
// of leases that the scripts keep in the store. A fault in the Lua panics.
type learned struct {
	*leases
	vm                                              *lua.LState
	load, gate, started, ended, undone, dump, facts lua.LValue
	state                                           *lua.LTable
	config                                          capacity.LawConfig
}

func (p program) law(config capacity.LawConfig) *learned {
	vm := lua.NewState(lua.Options{SkipOpenLibs: true})
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenTable, lua.OpenString, lua.OpenMath} {
		vm.Push(vm.NewFunction(open))
		vm.Call(0, 0)
	}
	vm.Push(vm.NewFunctionFromProto(p.proto))
	vm.Call(0, 1)
	law := vm.ToTable(-1)
	vm.Pop(1)
	l := &learned{leases: newLeases(), vm: vm, config: config}
	l.load, l.gate, l.started = law.RawGetString("load"), law.RawGetString("gate"), law.RawGetString("started")
	l.ended, l.undone = law.RawGetString("ended"), law.RawGetString("undone")
	l.dump, l.facts = law.RawGetString("dump"), law.RawGetString("facts")
	return l
}

func number(n int64) lua.LValue { return lua.LNumber(n) }

// restore makes the state of fields in the law's order, as a script does; nil is a store
// that knows nothing.
func (l *learned) restore(now int64, fields []string) {
	t := l.vm.NewTable()
	for _, f := range fields {
		t.Append(lua.LString(f))
	}
	l.call(l.load, 1, number(now), lua.LString(l.config.Text()), t)
	l.state = l.vm.ToTable(-1)
	l.vm.Pop(1)
}

func (l *learned) call(fn lua.LValue, results int, args ...lua.LValue) {
	l.vm.Push(fn)
	for _, a := range args {
		l.vm.Push(a)
	}
	l.vm.Call(len(args), results)
}

func (l *learned) admit(now int64, c *call) (bool, int64) {
	why, wait := l.ask(now, c.id, c.lane, c.reserved())
	return why == 0, wait
}

// ask asks for a slot: 0 it was given, else what held the call back.
func (l *learned) ask(now, id int64, of lane, tokens int64) (why, wait int64) {
	l.expire(now)
	if l.state == nil {
		l.restore(now, nil) // as a script does that finds no state
	}
	rt := lua.LBool(of == laneRT)
	l.call(l.gate, 2, l.state, number(now), rt, number(tokens), number(int64(len(l.held))), number(int64(l.background)))
	why, wait = asInt(l.vm.Get(-2)), asInt(l.vm.Get(-1))
	l.vm.Pop(2)
	if why != 0 {
		return why, wait
	}
	l.call(l.started, 1, l.state, rt, number(tokens), number(int64(len(l.held)+1)))
	stamp := asInt(l.vm.Get(-1))
	l.vm.Pop(1)
	l.add(now, id, lease{lane: of, tokens: tokens, started: stamp})
	return 0, 0
}

func (l *learned) settle(now, id int64, e capacity.Ending, tokens, retryAfter int64) {
	l.expire(now)
	held, ok := l.remove(id)
	if !ok {
		return
	}
	l.call(l.ended, 0, l.state, number(now), number(held.started), number(held.tokens), lua.LString(e), number(tokens),
		number(retryAfter), number(int64(len(l.held))))
}

// limiter makes one with a memory of its own for each run.
func (p program) limiter(config capacity.LawConfig) func(*provider) limiter {
	return func(*provider) limiter { return p.law(config) }
}

func asInt(v lua.LValue) int64 { return int64(lua.LVAsNumber(v)) }
