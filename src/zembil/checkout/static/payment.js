// The page follows its payment. All of it works without this file, which only spares the payer from reloading.
(() => {
  "use strict"
  const WAITS = [2, 3, 5, 8, 15, 30] // seconds between questions, when events do not come through
  const live = document.getElementById("live")
  let main = document.querySelector("main")
  let source, timer, silence, later, ticking
  let tries = 0, chosen = false

  const stop = () => {
    if (source) source.close()
    for (const wait of [timer, silence, later]) clearTimeout(wait)
    clearInterval(ticking)
  }

  // Fetch the page anew and put it in the place of the old one; what was typed stays.
  const renew = async () => {
    if (main.dataset.state === "away") return location.replace(main.dataset.path + main.dataset.query)
    const answer = await fetch(main.dataset.path + main.dataset.query)
    if (!answer.ok) throw answer.status
    const page = new DOMParser().parseFromString(await answer.text(), "text/html")
    const next = page.querySelector("main")
    const typed = main.querySelector("#phone"), field = next.querySelector("#phone")
    if (typed && field) field.value = typed.value
    const held = main.contains(document.activeElement)
    main.replaceWith(next)
    main = next
    document.title = page.title
    const heading = main.querySelector(".action h2, .action legend")
    live.textContent = heading.textContent + (document.documentElement.lang === "am" ? "። " : ". ") + (heading.nextElementSibling || heading).textContent
    if (held) {
      heading.tabIndex = -1
      heading.focus()
    }
    begin()
  }

  const poll = async () => {
    try {
      const version = '"' + main.dataset.version + '"'
      const answer = await fetch(main.dataset.path + "/status", {headers: {"If-None-Match": version}})
      if (answer.ok) return await renew()
    } catch (error) {
      // no signal, or the service is away: it is asked again
    }
    timer = setTimeout(poll, 1e3 * WAITS[Math.min(tries++, WAITS.length - 1)])
  }

  const pollInstead = () => {
    stop()
    count()
    poll()
  }

  const follow = () => {
    if (!window.EventSource) return poll()
    source = new EventSource(main.dataset.path + "/events")
    silence = setTimeout(pollInstead, 8e3) // a proxy holds the events back
    source.onmessage = event => {
      clearTimeout(silence)
      if (event.data !== main.dataset.version) renew().catch(pollInstead)
    }
    source.onerror = () => source.readyState === 2 && pollInstead()
  }

  // Minutes left, by a duration and not by the phone's clock, which may be wrong; only the last ten are shown.
  const count = () => {
    clearInterval(ticking)
    const soon = main.querySelector(".soon")
    if (!soon) return
    const ends = Date.now() + 1e3 * soon.dataset.seconds
    const show = () => {
      const left = ends - Date.now(), minutes = Math.floor(left / 6e4)
      soon.dataset.seconds = Math.max(0, Math.floor(left / 1e3))
      soon.hidden = left > 6e5
      soon.textContent = minutes < 1 ? soon.dataset.none
        : minutes < 2 ? soon.dataset.one : soon.dataset.many.replace("0", minutes)
    }
    ticking = setInterval(show, 5e3)
    show()
  }

  const begin = () => {
    stop()
    count()
    const again = main.querySelector("[data-after]")
    if (again) later = setTimeout(() => {
      again.hidden = false
      main.querySelector(".before").hidden = true
    }, 1e3 * again.dataset.after)
    if (document.hidden) return
    if (main.dataset.watch === "live") follow()
    if (main.dataset.watch === "slow") timer = setTimeout(poll, 3e4)
  }

  document.addEventListener("input", event => {
    const field = event.target
    if (field.type === "radio") chosen = true
    if (field.id !== "phone" || chosen) return
    const start = field.value.replace(/\D/g, "").replace(/^(00)?251/, "0").slice(0, 2)
    const wallet = main.querySelector('[data-begins="' + start + '"]')
    if (wallet) wallet.checked = true
  })
  const print = document.querySelector("[data-print]")
  if (print) {
    print.hidden = false
    print.addEventListener("click", () => window.print())
  }
  if (!main.dataset.path) return
  document.addEventListener("visibilitychange", () => document.hidden ? stop() : begin())
  window.addEventListener("pageshow", event => event.persisted && begin())
  begin()
})()
