/* void coro_switch(void **save, void *to): pushes the callee-saved registers, stores the stack pointer in
 * *save, and goes on where `to` was saved.  Control words of the FPU are the same in all coroutines. */

        .text
        .globl  coro_switch
        .type   coro_switch, %function
#if defined(__x86_64__)
        .p2align 4
coro_switch:
        pushq   %rbp
        pushq   %rbx
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        movq    %rsp, (%rdi)
        movq    %rsi, %rsp
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbx
        popq    %rbp
        ret
        .size   coro_switch, .-coro_switch

/* A new stack's first frame: the argument waits in rbx, the function in r12.  It does not return. */
        .globl  coro_first
        .type   coro_first, %function
        .p2align 4
coro_first:
        .cfi_startproc
        .cfi_undefined rip
        movq    %rbx, %rdi
        callq   *%r12
        ud2
        .cfi_endproc
        .size   coro_first, .-coro_first

#elif defined(__aarch64__)
        .p2align 4
coro_switch:
        sub     sp, sp, #160
        stp     x19, x20, [sp, #0]
        stp     x21, x22, [sp, #16]
        stp     x23, x24, [sp, #32]
        stp     x25, x26, [sp, #48]
        stp     x27, x28, [sp, #64]
        stp     x29, x30, [sp, #80]
        stp     d8, d9, [sp, #96]
        stp     d10, d11, [sp, #112]
        stp     d12, d13, [sp, #128]
        stp     d14, d15, [sp, #144]
        mov     x9, sp
        str     x9, [x0]
        mov     sp, x1
        ldp     x19, x20, [sp, #0]
        ldp     x21, x22, [sp, #16]
        ldp     x23, x24, [sp, #32]
        ldp     x25, x26, [sp, #48]
        ldp     x27, x28, [sp, #64]
        ldp     x29, x30, [sp, #80]
        ldp     d8, d9, [sp, #96]
        ldp     d10, d11, [sp, #112]
        ldp     d12, d13, [sp, #128]
        ldp     d14, d15, [sp, #144]
        add     sp, sp, #160
        ret
        .size   coro_switch, .-coro_switch

/* A new stack's first frame: the argument waits in x19, the function in x20.  It does not return. */
        .globl  coro_first
        .type   coro_first, %function
        .p2align 4
coro_first:
        .cfi_startproc
        .cfi_undefined x30
        mov     x0, x19
        blr     x20
        brk     #1
        .cfi_endproc
        .size   coro_first, .-coro_first
#else
#error "no coroutine switch for this processor"
#endif
        .section .note.GNU-stack, "", %progbits
