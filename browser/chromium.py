"""Debian's chromium without a window, driven by selenium: a page and what can be done to it."""

from contextlib import contextmanager

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

# Without a sandbox, because root may not have one; what it opens is a page of our own that may load nothing.
FLAGS = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"]
PATIENCE = 30  # seconds


@contextmanager
def chromium(size=(1280, 1600)):
    """A browser that logs its console and every request."""
    options = webdriver.ChromeOptions()
    for flag in [*FLAGS, f"--window-size={size[0]},{size[1]}"]:
        options.add_argument(flag)
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """A report in the browser."""

    def __init__(self, driver, path):
        self.driver, self.path = driver, path
        self.loads = 0

    def open(self, dark=False, **start):
        """Load it afresh, at a point of the sweep if one is given."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        # A new query loads the page anew, where another fragment alone would not. Going by about:blank does as well,
        # but chromedriver does not wait for that page: the next navigation may get lost and never answer.
        self.loads += 1
        fragment = "&".join(f"{key}={value}" for key, value in start.items())
        self.driver.get(f"{self.path.as_uri()}?{self.loads}#{fragment}")
        self.wait(lambda: self.shown)
        return self

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.find(selector).text

    def choose(self, selector, name):
        Select(self.find(selector)).select_by_visible_text(name)

    def method(self, label):
        self.driver.find_element(By.XPATH, f"//fieldset//label[normalize-space()='{label}']").click()

    @property
    def shown(self):
        """Model, method, ratio, layer and plane, as the page says once all of it is drawn."""
        return self.find("#main").get_attribute("data-shown")

    def wait(self, true):
        return WebDriverWait(self.driver, PATIENCE, poll_frequency=0.05).until(lambda _: true())

    def wait_for(self, model, method, ratio, layer, plane="distance"):
        self.wait(lambda: self.shown == f"{model} {method} {ratio} {layer} {plane}")

    def column(self, chart, source, column):
        """The numbers a chart shows, asked of the charting library."""
        script = "return Array.from(charts[arguments[0]].get_model_by_name(arguments[1]).data[arguments[2]])"
        return self.driver.execute_script(script, chart, source, column)

    def picture(self, selector):
        """A part of the page as it looks, once it has been painted."""
        self.driver.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 100))")
        return self.find(selector).screenshot_as_png
