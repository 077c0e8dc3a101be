/* What `scripts/build-wheels` links the extension against in place of libgcc_s, whose name it bears:
   these symbols are libgcc_s's when the extension is loaded. Zig would link an unwinder of its own
   into it. When the interpreter exits, glibc ends threads by libgcc_s, through frames of Rust, and two
   unwinders at one stack end the process with SIGSEGV. */
#define SYMBOL(name) void name(void) {}
SYMBOL(_Unwind_Backtrace)
SYMBOL(_Unwind_DeleteException)
SYMBOL(_Unwind_FindEnclosingFunction)
SYMBOL(_Unwind_ForcedUnwind)
SYMBOL(_Unwind_GetCFA)
SYMBOL(_Unwind_GetDataRelBase)
SYMBOL(_Unwind_GetGR)
SYMBOL(_Unwind_GetIP)
SYMBOL(_Unwind_GetIPInfo)
SYMBOL(_Unwind_GetLanguageSpecificData)
SYMBOL(_Unwind_GetRegionStart)
SYMBOL(_Unwind_GetTextRelBase)
SYMBOL(_Unwind_RaiseException)
SYMBOL(_Unwind_Resume)
SYMBOL(_Unwind_Resume_or_Rethrow)
SYMBOL(_Unwind_SetGR)
SYMBOL(_Unwind_SetIP)
