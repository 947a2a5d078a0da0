"""The one list of what dgent can do: each verb is one typed async function, the same at every door."""
