// Runs kernels that are WebAssembly modules: reads requests, and writes answers.
//
// A request begins with seven int64: the module's number, its size (0 if it was sent before), the
// number of buffers, the number of integers, the begin and the end of the range, and the size of
// the memory. A new module, the buffers' offsets, the integers and the memory follow. The answer is
// the status and the memory.
"use strict";

const fs = require("fs");

const PAGE = 65536;
const STACK = 16 * PAGE; // the stack grows down from here
const ARGUMENTS = STACK; // pointers to buffers, then the integers
const CONTENT = 32 * PAGE;
const kernels = new Map();
const memory = new WebAssembly.Memory({ initial: 64 });
const stack = new WebAssembly.Global({ value: "i32", mutable: true }, STACK);
const table = new WebAssembly.Table({ initial: 0, element: "anyfunc" });

function read(size) {
  const found = Buffer.alloc(size);
  for (let done = 0; done < size; ) {
    let count = 0;
    try {
      count = fs.readSync(0, found, done, size - done, null);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      continue;
    }
    if (count === 0) process.exit(0);
    done += count;
  }
  return found;
}

function write(content) {
  for (let done = 0; done < content.length; ) {
    done += fs.writeSync(1, content, done);
  }
}

for (;;) {
  const head = new BigInt64Array(read(56).buffer);
  const [number, size, buffers, integers, , , used] = Array.from(head, Number);
  if (size > 0) {
    const module = new WebAssembly.Module(read(size));
    const env = { __linear_memory: memory, __stack_pointer: stack, __indirect_function_table: table };
    kernels.set(number, new WebAssembly.Instance(module, { env }).exports.kernel);
  }
  const given = read(8 * (buffers + integers));
  const missing = CONTENT + used - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / PAGE));
  const bytes = new Uint8Array(memory.buffer);
  bytes.set(read(used), CONTENT);
  const view = new DataView(memory.buffer);
  for (let i = 0; i < buffers; i++) {
    view.setUint32(ARGUMENTS + 4 * i, CONTENT + Number(given.readBigInt64LE(8 * i)), true);
  }
  const first = ARGUMENTS + 8 * buffers;
  bytes.set(given.subarray(8 * buffers), first);
  const status = kernels.get(number)(ARGUMENTS, first, head[4], head[5]);
  const answer = Buffer.alloc(8);
  answer.writeBigInt64LE(BigInt(status));
  write(Buffer.concat([answer, Buffer.from(bytes.buffer, CONTENT, used)]));
}
